"""Whether lines that have not run yet call a layer: told from their source and what their frame knows."""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

from torch import nn

from tclint.tracing.values.module_class import is_module

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
