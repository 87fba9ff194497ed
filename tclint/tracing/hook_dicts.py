"""Modules without what nn.Module makes for hooks and keeps empty, until somebody asks for it.

Eleven dicts and a set are 1.6 KiB of a module, more than half of what it takes on meta tensors.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch.nn.modules.module as torch_module
from torch import nn

_installed: dict[str, type[Any]] = {}
"""Attributes that nn.Module makes when it is asked, and what of."""
_EMPTY_SET = "_non_persistent_buffers_set"
_CALL_HOOKS = frozenset({"_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"})
_any_global_hook: Any = getattr(torch_module, "_has_any_global_hook", None)


class _MadeWhenAsked:
    """Stands in nn.Module for an attribute that a module lacks; what is in the module itself comes first."""

    __slots__ = ("_kind", "_name")

    def __init__(self, name: str, kind: type[Any]) -> None:
        self._name = name
        self._kind = kind

    def __get__(self, module: nn.Module | None, owner: type | None = None) -> Any:
        if module is None or "_modules" not in module.__dict__:
            raise AttributeError(self._name)  # nn.Module's __getattr__ words it
        made = module.__dict__[self._name] = self._kind()
        return made


def make_hook_dicts_when_asked() -> None:
    """For good, in a process that only builds and traces models. Nothing is different but the memory."""
    if _installed:
        return
    for name, value in vars(nn.Module()).items():
        kind = set if name == _EMPTY_SET else OrderedDict
        if ("_hooks" in name or kind is set) and type(value) is kind and not hasattr(nn.Module, name):
            _installed[name] = kind
    for name, kind in _installed.items():
        setattr(nn.Module, name, _MadeWhenAsked(name, kind))


def leave_out_hook_dicts(module: nn.Module) -> None:
    """Those that are empty, of a module that was just initialised."""
    attributes = module.__dict__
    for name in _installed:
        if not attributes.get(name, True):
            del attributes[name]


def has_no_hooks(module: nn.Module) -> bool:
    """Whether a call of the module is one of its forward."""
    return (
        _any_global_hook is not None
        and not _any_global_hook()
        and type(module)._call_impl is nn.Module._call_impl
        and _CALL_HOOKS.isdisjoint(module.__dict__)
    )
