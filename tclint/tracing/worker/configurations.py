"""Configurations that a model is made from: read from files, or made with the defaults of their class."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tclint.core.errors import TargetError, closest
from tclint.core.toml import parse_toml

_CONFIG_ARGUMENT = re.compile(
    r"(\w+_)?(config|configuration|conf|cfg|args|params|hparams|hps?|opts?|options|settings)", re.IGNORECASE
)
_CONFIG_CLASS = re.compile(
    r"\w*(Config|Configuration|Conf|Cfg|CFG|Args|Arguments|Params|Parameters|HParams|Hparams|Options|Settings)"
)
_DEFAULT_CONFIGS = ("get_default_config", "default_config")
"""Functions of a class that return the configuration which it is made from."""


class Options(dict[str, Any]):
    """What a configuration holds, by key and by attribute, as people's own classes have it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def from_file(name: str, kind: Any) -> Any:
    """The contents of a JSON, TOML or YAML file: given to the class, or as options by key and attribute.

    Args:
        name: of the file, with the section that is meant behind a colon: 'conf.yaml:model.encoder'.

    Raises:
        TargetError: it cannot be read, or the class does not take what it holds.
    """
    file, colon, section = name.rpartition(":")
    path = Path(file if colon and not Path(name).exists() else name)
    steps = section.split(".") if str(path) != name else []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise TargetError(f"{str(path)!r} cannot be read: {reason}.") from None
    data = _parsed(text, path)
    for step in steps:
        if not isinstance(data, dict) or step not in data:
            known = [str(key) for key in data] if isinstance(data, dict) else []
            raise TargetError(f"{str(path)!r} has no section {section!r}.{closest(step, known)}")
        data = data[step]
    if not isinstance(data, dict):
        raise TargetError(f"{name!r} holds no keys with values.")
    if inspect.isclass(kind) and not issubclass(kind, (dict, argparse.Namespace)):
        try:
            return kind(**data)
        except TypeError as error:
            raise TargetError(f"{kind.__name__} does not take what {name!r} holds: {error}.") from None
    return as_options(data)


def _parsed(text: str, path: Path) -> Any:
    try:
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix == ".toml":
            return parse_toml(text)
        return importlib.import_module("yaml").safe_load(text)
    except ModuleNotFoundError as error:
        raise TargetError(
            f"to read {str(path)!r} the package {error.name!r} is needed; install it, or write JSON."
        ) from None
    except Exception as error:  # each parser has its own class of errors
        reason = str(error).partition("\n")[0].rstrip(".")
        raise TargetError(f"{str(path)!r} cannot be read: {reason}.") from None


def as_options(value: Any) -> Any:
    """The value, whose dicts have their keys as attributes, too."""
    if type(value) is dict:
        return Options({key: as_options(item) for key, item in value.items()})
    return [as_options(item) for item in value] if type(value) is list else value


def configuration_maker(
    name: str, kind: Any, function: Callable[..., Any], module: ModuleType
) -> Callable[..., Any] | None:
    """What makes the configuration that a callable takes, of the same project; None where it is not certain.

    Args:
        name: of the callable's argument.
        kind: the class that the argument is annotated with, if it is.
        function: the callable, mostly the model's class.
        module: where it was found.
    """
    if inspect.isclass(kind):
        return kind if _is_of_project(kind) and _looks_like_configuration(kind) else None
    if _CONFIG_ARGUMENT.fullmatch(name) is None:
        return None
    for default in _DEFAULT_CONFIGS:
        maker: Callable[..., Any] | None = getattr(function, default, None)
        if inspect.isclass(function) and callable(maker):
            return maker
    classes = _classes_beside(function, module)
    return classes[0] if len(classes) == 1 else None


def _classes_beside(function: Callable[..., Any], module: ModuleType) -> list[Any]:
    """The configuration of the model's own name, else the only one that its file knows."""
    file = sys.modules.get(getattr(function, "__module__", ""), module)
    found = {
        name: value
        for name, value in vars(file).items()
        if inspect.isclass(value) and _is_of_project(value) and _CONFIG_CLASS.fullmatch(value.__name__)
    }
    own = str(getattr(function, "__name__", ""))
    named = [value for name, value in found.items() if name.startswith(own)]
    return named if len(named) == 1 else list(dict.fromkeys(found.values()))


def _looks_like_configuration(kind: Any) -> bool:
    fields = ("__dataclass_fields__", "__attrs_attrs__", "model_fields")
    return any(hasattr(kind, field) for field in fields) or _CONFIG_CLASS.fullmatch(kind.__name__) is not None


def _is_of_project(kind: Any) -> bool:
    from tclint.tracing.values.sites import SiteFinder

    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return isinstance(file, str) and SiteFinder().is_user_file(file)
