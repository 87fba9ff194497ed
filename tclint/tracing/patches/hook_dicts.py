"""Modules without the dicts that nn.Module makes for hooks and keeps empty, until somebody asks for one.

Eleven of them and an empty set are 1.6 KiB of a module, more than half of what it takes on meta tensors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch.nn.modules.module as torch_module
from torch import nn

_installed: list[str] = []
"""Names of what nn.Module makes when it is asked."""
_NAMES = "_non_persistent_buffers_set"
_call_impl: Any = nn.Module._call_impl
_plain: WeakKeyDictionary[type[nn.Module], bool] = WeakKeyDictionary()
_CALL_HOOKS = frozenset({"_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"})
_any_global_hook: Any = getattr(torch_module, "_has_any_global_hook", None)


def _initialised(module: nn.Module | None, name: str) -> nn.Module:
    """The module itself.

    Raises:
        AttributeError: it is the class that is asked, or `nn.Module.__init__` was not called.
    """
    if module is None or "_modules" not in module.__dict__:
        raise AttributeError(name)  # nn.Module's __getattr__ words it
    return module


class _MadeWhenAsked:
    """Stands in nn.Module for an attribute that a module lacks; what is in the module itself comes first."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: nn.Module | None, owner: type | None = None) -> OrderedDict[int, Any]:
        initialised = _initialised(module, self._name)
        made: OrderedDict[int, Any] = OrderedDict()
        initialised.__dict__[self._name] = made
        return made


class _NoNames(set[str]):
    """The names of non-persistent buffers of a module that has none; the first is written into the module.

    Whoever only reads, as every assignment of a parameter does, changes nothing.
    """

    __slots__ = ("_module",)

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def add(self, name: str) -> None:
        self.update((name,))

    def update(self, *names: Iterable[str]) -> None:
        self._module.__dict__.setdefault(_NAMES, set()).update(*names)

    def __reduce__(self) -> Any:
        return set, ()


class _NoNamesOf:
    """Stands in nn.Module for the set of those names."""

    def __get__(self, module: nn.Module | None, owner: type | None = None) -> set[str]:
        return _NoNames(_initialised(module, _NAMES))


def make_hook_dicts_when_asked() -> None:
    """For good, in a process that only builds and traces models. Nothing is different but the memory."""
    if _installed:
        return
    for name, value in vars(nn.Module()).items():
        if "_hooks" in name and type(value) is OrderedDict and not hasattr(nn.Module, name):
            _installed.append(name)
    for name in _installed:
        setattr(nn.Module, name, _MadeWhenAsked(name))
    if type(vars(nn.Module()).get(_NAMES)) is set:
        _installed.append(_NAMES)
        setattr(nn.Module, _NAMES, _NoNamesOf())


def leave_out_hook_dicts(module: nn.Module) -> None:
    """Those that are empty, of a module that was just initialised."""
    if not _is_plain(type(module)):
        return
    attributes = module.__dict__
    for name in _installed:
        if not attributes.get(name, True):
            del attributes[name]


def has_no_hooks(module: nn.Module) -> bool:
    """Whether a call of the module is one of its forward."""
    attributes = module.__dict__
    return (
        bool(_installed)
        and "_modules" in attributes  # initialised
        and "_call_impl" not in attributes
        and _CALL_HOOKS.isdisjoint(attributes)
        and _any_global_hook is not None
        and not _any_global_hook()
        and nn.Module._call_impl is _call_impl
        and _is_plain(type(module))
    )


def _is_plain(kind: type[nn.Module]) -> bool:
    """Whether hooks and calls are nn.Module's own in a class of modules."""
    plain = _plain.get(kind)
    if plain is None:
        own = {name for base in kind.__mro__ if base is not nn.Module for name in vars(base)}
        plain = _plain[kind] = own.isdisjoint((*_installed, "_call_impl"))
    return plain
