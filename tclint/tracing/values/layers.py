"""What is known of a layer: its class, what it was constructed with, and whether lines yet to run call it."""

from __future__ import annotations

import ast
import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import nn


def is_module(value: Any) -> bool:
    """Whether the value is an nn.Module, whatever it says of its class."""
    return issubclass(type(value), nn.Module)


def class_name(model: Any) -> str:
    """The name of a model's class; of a scripted module, that of the class it was made from."""
    name = getattr(model, "original_name", None) if isinstance(model, torch.jit.ScriptModule) else None
    return name if isinstance(name, str) else type(model).__name__


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


def remember_builder(module: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Keep what the function got that built the module, too; its constructor's own arguments come first."""
    kept = {name: value for name, value in arguments.items() if _is_kept(name, value)}
    module.__dict__[_ATTRIBUTE] = {**kept, **module.__dict__.get(_ATTRIBUTE, {})}


def arguments_of(module: nn.Module) -> SimpleNamespace:
    """What `remember_arguments` kept, as attributes."""
    kept: Mapping[str, Any] = module.__dict__.get(_ATTRIBUTE, {})
    return SimpleNamespace(**kept)


def _is_kept(name: str, value: Any) -> bool:
    if is_record(value):
        return True
    if name in CONFIGURATIONS:
        return hasattr(value, "__dict__") and not isinstance(value, nn.Module)
    if isinstance(value, (tuple, list)):
        return 0 < len(value) <= 3 and all(type(item) is int for item in value)
    return type(value) is int


def is_record(value: Any) -> bool:
    """Whether the value holds others by name, as configurations do: a dict, a namespace, a named tuple."""
    if _is_mapping(value):
        return bool(value) and all(isinstance(key, str) for key in value)
    if isinstance(value, tuple):
        return hasattr(value, "_fields")
    return (
        isinstance(getattr(value, "__dict__", None), dict)
        and not isinstance(value, (nn.Module, torch.Tensor, type))
        and not callable(value)
        and type(value).__module__ != "builtins"
    )


def _is_mapping(value: Any) -> bool:
    """Whether the value has keys: some configurations do and are no Mapping."""
    return isinstance(value, Mapping) or all(hasattr(type(value), name) for name in ("keys", "__getitem__"))


def named_values(record: Any) -> dict[str, Any]:
    """What `is_record` found, by name."""
    if not _is_mapping(record):
        fields: tuple[str, ...] = getattr(record, "_fields", ())
        return {name: getattr(record, name) for name in fields} if fields else dict(vars(record))
    found: dict[str, Any] = {}
    for name in record:
        with contextlib.suppress(Exception):  # a value that nobody gave yet
            found[name] = record[name]
    return found


_FORWARDS = frozenset({"forward", "__call__"})


def callees(nodes: Iterable[ast.AST]) -> tuple[ast.expr, ...]:
    """What the nodes call: `self.experts[i]` of `self.experts[i](x)`."""
    return tuple(call.func for node in nodes for call in ast.walk(node) if isinstance(call, ast.Call))


def calls_a_layer(frame: FrameType, called: Iterable[ast.expr]) -> bool:
    """Whether one of the callees is a module with weights, as far as the frame's names tell. Runs nothing."""
    names: Mapping[str, Any] = {**frame.f_globals, **frame.f_locals}
    for callee in called:
        found = _value(callee, names)
        if is_module(found) and any(module._parameters for module in nn.Module.modules(found)):
            return True
    return False


def _value(path: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a path of names, attributes and places stands for (in a container, any module), or None."""
    if isinstance(path, ast.Name):
        return names.get(path.id)
    if isinstance(path, ast.Attribute):
        owner = _value(path.value, names)
        if is_module(owner):
            if path.attr in _FORWARDS:
                return owner
            found = owner._modules.get(path.attr)
            return found if found is not None else owner.__dict__.get(path.attr)
    if isinstance(path, ast.Subscript):
        owner = _value(path.value, names)
        held = owner._modules if is_module(owner) else owner
        if type(held) in (dict, OrderedDict):
            held = held.values()
        elif type(held) not in (list, tuple):
            return None
        return next((item for item in held if is_module(item)), None)
    return None
