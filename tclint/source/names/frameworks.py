"""The names of frameworks.toml, loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.toml import packaged_toml, parse_toml


@dataclass(frozen=True, slots=True)
class AutocastCall:
    """How one spelling of autocast takes its arguments."""

    device: str
    """'cuda', 'cpu', or 'argument': its `device_type` parameter."""
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Known names; all are fully qualified unless said otherwise."""

    autocast: dict[str, AutocastCall]
    autocast_default_dtype: dict[str, str]
    """Device -> dtype of autocast without a dtype."""
    changes_autocast_default: frozenset[str]
    stars: dict[str, frozenset[str]]
    gradients_off: frozenset[str]
    gradients_on: frozenset[str]
    clips: frozenset[str]
    deprecated_amp: dict[str, str]
    """Old name -> what to write instead."""
    scaler_classes: dict[str, tuple[str, ...]]
    """Class -> its positional parameters."""
    scaler_words: tuple[str, ...]
    """Parts of identifiers in lower case without underscores."""
    not_loss_scalers: frozenset[str]
    """Class names, unqualified."""
    not_tensors: frozenset[str]
    """Last parts of receivers' names."""
    frameworks: dict[str, str]
    """Module or imported name -> the framework's name."""

    def framework_of(self, qualified: str) -> str | None:
        """The framework that an import of `qualified` brings in."""
        while qualified:
            if qualified in self.frameworks:
                return self.frameworks[qualified]
            qualified = qualified.rpartition(".")[0]
        return None


_EXTENSIONS: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("frameworks", default=())


@contextmanager
def extended(paths: tuple[str, ...]) -> Iterator[None]:
    """Within the block, `names()` holds what these files of the user add to frameworks.toml as well.

    Raises:
        UsageError: one of them cannot be read.
    """
    token = _EXTENSIONS.set(tuple((path, _read(path)) for path in paths))
    try:
        yield
    finally:
        _EXTENSIONS.reset(token)


def names() -> Names:
    """Known names: those of frameworks.toml and of the files in `extended`.

    Raises:
        UsageError: such a file is not like frameworks.toml.
    """
    return _load(_EXTENSIONS.get())


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}; fix `frameworks`.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"Cannot read {path}: it is not UTF-8 (byte {error.start}).") from error


@cache
def _load(extensions: tuple[tuple[str, str], ...]) -> Names:
    data = packaged_toml("tclint.source.names", "frameworks.toml")
    for path, text in extensions:
        try:
            added = parse_toml(text)
        except ValueError as error:
            raise UsageError(f"{path} is not valid TOML: {error}.") from error
        _merge(data, added, path, "")
    try:
        return _names(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{', '.join(path for path, _ in extensions)} does not have the form of tclint's frameworks.toml "
            f"({type(error).__name__}: {error})."
        ) from error


def _merge(data: dict[str, Any], added: dict[str, Any], path: str, where: str) -> None:
    for key, value in added.items():
        known = data.get(key)
        if known is None and not where:
            raise UsageError(f"{path}: {key!r} is not a table of frameworks.toml; it has {', '.join(data)}.")
        if known is None:
            data[key] = value
        elif isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value, path, f"{where}{key}.")
        elif isinstance(known, list) and isinstance(value, list):
            known.extend(value)
        elif type(known) is type(value):
            data[key] = value
        else:
            raise UsageError(f"{path}: {where}{key} must be a {type(known).__name__} as in frameworks.toml.")


def _names(data: dict[str, Any]) -> Names:
    autocast = data["autocast"]
    return Names(
        autocast={
            name: AutocastCall(call["device"], tuple(call["parameters"]))
            for call in autocast["call"]
            for name in call["names"]
        },
        autocast_default_dtype=dict(autocast["default_dtype"]),
        changes_autocast_default=frozenset(autocast["changes_default"]["names"]),
        stars={module: frozenset(listed) for module, listed in data["stars"].items()},
        gradients_off=frozenset(data["gradients"]["off"]),
        gradients_on=frozenset(data["gradients"]["on"]),
        clips=frozenset(data["gradients"]["clip"]),
        deprecated_amp=dict(data["deprecated_amp"]),
        scaler_classes={
            name: tuple(made["parameters"]) for made in data["scaler_class"] for name in made["names"]
        },
        scaler_words=tuple(data["scaler"]["words"]),
        not_loss_scalers=frozenset(data["scaler"]["not_loss_scalers"]),
        not_tensors=frozenset(data["backward"]["not_tensors"]),
        frameworks={
            module: framework["name"] for framework in data["framework"] for module in framework["modules"]
        },
    )
