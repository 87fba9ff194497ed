"""The sizes and configurations that a module was constructed with, which many models use and do not keep."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType, SimpleNamespace
from typing import Any

from torch import nn

_ATTRIBUTE = "_tclint_arguments"


CONFIGURATIONS = ("config", "configs", "cfg", "args", "hparams", "h")
"""What the parameter, or the attribute, for a model's configuration is called."""


def remember_arguments(module: nn.Module, frame: FrameType) -> None:
    """Keep the whole numbers, short lists of them, and configurations that the module's constructors got.

    Args:
        frame: what calls `nn.Module.__init__`: before constructors change their arguments, mostly.
    """
    if type(module).__module__.startswith("torch."):
        return
    found: dict[str, Any] = {}
    current: FrameType | None = frame
    while current is not None and current.f_code.co_name == "__init__":
        code = current.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        local = current.f_locals
        if not names or local.get(names[0]) is not module:
            break
        found |= {name: local[name] for name in names[1:] if _is_kept(name, local.get(name))}
        current = current.f_back
    module.__dict__[_ATTRIBUTE] = found


def arguments_of(module: nn.Module) -> SimpleNamespace:
    """What `remember_arguments` kept, as attributes."""
    kept: Mapping[str, Any] = module.__dict__.get(_ATTRIBUTE, {})
    return SimpleNamespace(**kept)


def _is_kept(name: str, value: Any) -> bool:
    if name in CONFIGURATIONS:
        return hasattr(value, "__dict__") and not isinstance(value, nn.Module)
    if isinstance(value, (tuple, list)):
        return 0 < len(value) <= 3 and all(type(item) is int for item in value)
    return type(value) is int
