"""The names of frameworks.toml, loaded once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tclint.core.toml import packaged_toml


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
    float32_checkpoints: tuple[str, ...]
    """Patterns, as fnmatch has them, of names on the Hugging Face Hub."""

    def framework_of(self, qualified: str) -> str | None:
        """The framework that an import of `qualified` brings in."""
        while qualified:
            if qualified in self.frameworks:
                return self.frameworks[qualified]
            qualified = qualified.rpartition(".")[0]
        return None


@cache
def names() -> Names:
    """Those of frameworks.toml."""
    data = packaged_toml("tclint.source.names", "frameworks.toml")
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
        float32_checkpoints=tuple(data["checkpoints"]["float32"]),
    )
