"""Which layer takes each argument of a forward: read from its source, with the model's own layers at hand.

Follows an argument through views, arithmetic and method calls to the first layer that it is given to. What
the source does not show stays unknown.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from tclint.tracing.inputs.forward import (
    called,
    first_name,
    function_of,
    globals_of,
    is_torchs,
    package_of,
)
from tclint.tracing.inputs.uses.followed_calls import (
    ADDS_A_DIM,
    JOINS,
    METADATA,
    PLACES,
    WITH_PLACES,
    ArgumentUse,
    FollowedCalls,
    plain_helper,
)
from tclint.tracing.inputs.uses.model_objects import OwnObjects


def uses_of(model: nn.Module) -> dict[str, ArgumentUse]:
    """A Use for every argument of the model's forward about which its source tells something."""
    function = function_of(model.forward)
    if function is None:
        return {}
    names = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)][1:]
    uses = {name: ArgumentUse() for name in names}
    try:
        holds = {name: frozenset({name}) for name in names}
        _Walk(model, uses, holds, FollowedCalls(), first_name(function), model.forward).run(function.body)
    except RecursionError:
        return {}
    return uses


_Names = frozenset[str]
_NOTHING: _Names = frozenset()


class _Walk:
    """Goes through one function in the order of its source; knows which names hold which arguments."""

    def __init__(
        self,
        owner: nn.Module,
        uses: dict[str, ArgumentUse],
        holds: dict[str, _Names],
        calls: FollowedCalls,
        own_name: str,
        method: Any,
    ) -> None:
        self._owner = owner
        self._uses = uses
        self._holds = holds
        self._calls = calls
        self._own = OwnObjects(owner, own_name)
        self._names: Mapping[str, Any] = globals_of(method)
        """What the names stand for that the function finds in its module."""
        self.returned: _Names = _NOTHING

    def run(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            held = self._value(node.value)
            for target in node.targets:
                self._bind(target, held, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            held = self._value(node.value)
            if isinstance(node, ast.AnnAssign):
                self._bind(node.target, held, node.value)
        elif isinstance(node, ast.For):
            self._loop(node.target, node.iter)
            self.run([*node.body, *node.orelse])
        elif isinstance(node, ast.Return):
            if node.value is not None:
                self.returned |= self._value(node.value)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    self._statement(child)
                elif isinstance(child, ast.expr):
                    self._value(child)
                elif isinstance(child, (ast.withitem, ast.ExceptHandler, ast.match_case)):
                    for inner in ast.iter_child_nodes(child):
                        if isinstance(inner, ast.stmt):
                            self._statement(inner)
                        elif isinstance(inner, ast.expr):
                            self._value(inner)

    def _bind(self, target: ast.expr, held: _Names, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._holds[target.id] = held
            module = self._own.module(value)
            if module is not None:
                self._own.named[target.id] = module
        elif isinstance(target, (ast.Tuple, ast.List)):
            sides = (
                value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            )
            names_places = called(value) in WITH_PLACES and len(target.elts) == 2
            for index, item in enumerate(target.elts):
                part = _NOTHING if names_places and index else held
                self._bind(
                    item, self._value(sides[index]) if sides else part, sides[index] if sides else value
                )

    def _loop(self, target: ast.expr, source: ast.expr) -> None:
        held = self._value(source)
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Name):
            arguments = source.args
            if source.func.id == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                self._loop(target.elts[1], arguments[0])
                return
            if source.func.id == "zip" and isinstance(target, ast.Tuple):
                for item, argument in zip(target.elts, arguments, strict=False):
                    self._loop(item, argument)
                return
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
            container = self._own.container(source.func.value)
            if source.func.attr in ("items", "values") and container is not None:
                target = target.elts[-1] if isinstance(target, ast.Tuple) else target
                source = source.func.value
        module = self._own.container(source)
        if module is not None and isinstance(target, ast.Name):
            first = next(iter(module.children()), None)
            if first is not None:
                self._own.named[target.id] = first
                self._holds[target.id] = _NOTHING
                return
        if module is not None and isinstance(target, ast.Tuple) and self._unpack(target, module):
            return
        self._bind(target, held, source)

    def _unpack(self, target: ast.Tuple, container: nn.Module) -> bool:
        """`for block, attention in self.layers:`, where each item is a list of layers."""
        rows = [list(child.children()) for child in container.children()]
        if not rows or len(rows[0]) != len(target.elts):
            return False
        for place, name in enumerate(target.elts):
            if isinstance(name, ast.Name):
                # The first row may have nn.Identity where the others have a layer.
                parts = [row[place] for row in rows if len(row) > place]
                part = next((part for part in parts if not isinstance(part, nn.Identity)), parts[0])
                self._own.named[name.id] = part
                self._holds[name.id] = _NOTHING
        return True

    # ------------------------------------------------------------ expressions

    def _value(self, node: ast.expr | None) -> _Names:
        """The arguments whose values an expression holds, layers' outputs aside."""
        if node is None or isinstance(node, (ast.Constant, ast.Lambda)):
            return _NOTHING
        if isinstance(node, ast.Name):
            return self._holds.get(node.id, _NOTHING)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                self._value(part)
            return _NOTHING
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            for generator in node.generators:
                self._loop(generator.target, generator.iter)
            return self._value(node.value if isinstance(node, ast.DictComp) else node.elt)
        held = _NOTHING
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                held |= self._value(child)
        return held

    def _attribute(self, node: ast.Attribute) -> _Names:
        held = self._value(node.value)
        return _NOTHING if node.attr in METADATA or node.attr in PLACES else held

    def _subscript(self, node: ast.Subscript) -> _Names:
        held = self._value(node.value)
        if any(isinstance(part, ast.Constant) and part.value is None for part in ast.walk(node.slice)):
            self._mark_indirect(held)
        for name in self._value(node.slice):
            if not isinstance(node.slice, ast.Slice) and self._own.module(node.value) is None:
                self._uses[name].is_index = True
        is_later = isinstance(node.slice, ast.Constant) and node.slice.value in (1, 2)
        return _NOTHING if is_later and called(node.value) in WITH_PLACES else held

    def _call(self, node: ast.Call) -> _Names:
        module = self._own.module(node.func)
        values = [self._value(argument) for argument in node.args]
        named = {keyword.arg: self._value(keyword.value) for keyword in node.keywords}
        if module is not None:
            return self._module_call(module, values, named)
        function = node.func
        helper = plain_helper(node, self._names, self._holds, self._own)
        if helper is not None and any(values) and self._calls.may_enter(None, helper):
            return self._descend(None, helper, values, named)
        if isinstance(function, ast.Attribute):
            owner = self._own.object(function.value)
            # Its own methods and those of its parts; what all modules have does nothing to an argument.
            if isinstance(owner, nn.Module) and not hasattr(nn.Module, function.attr):
                method = getattr(type(owner), function.attr, None)
                if inspect.isfunction(method):
                    return self._descend(owner, method, values, named)
            if function.attr in METADATA or function.attr in PLACES:
                self._value(function.value)
                return _NOTHING
            if function.attr in ADDS_A_DIM:
                held = frozenset().union(*values, self._value(function.value))
                self._mark_indirect(held)
            receiver = self._value(function.value)
            if function.attr not in JOINS:
                # Methods and functions work on what comes first: lengths and masks come later.
                return receiver or (values[0] if values else _NOTHING)
            values.append(receiver)
        elif getattr(function, "id", "") not in JOINS:
            return values[0] if values else _NOTHING
        return frozenset().union(*values, *named.values())

    def _mark_indirect(self, held: _Names) -> None:
        for name in held:
            if self._uses[name].layer is None:
                self._uses[name].is_direct = False

    def _module_call(
        self,
        module: nn.Module,
        values: list[_Names],
        named: dict[str | None, _Names],
    ) -> _Names:
        is_leaf = is_torchs(module) or package_of(type(module).__module__) == "einops"
        forward = inspect.getattr_static(type(module), "forward", None)
        if not is_leaf and self._calls.may_enter(module, forward) and function_of(forward) is not None:
            return self._descend(module, forward, values, named)
        for position, held in enumerate((*values, *named.values())):
            for name in held:
                use = self._uses[name]
                if use.layer is None and not use.is_index:
                    use.layer, use.position = module, position
        return _NOTHING

    def _descend(
        self,
        owner: nn.Module | None,
        method: Callable[..., Any],
        values: list[_Names],
        named: dict[str | None, _Names],
    ) -> _Names:
        function = function_of(method) if self._calls.may_enter(owner, method) else None
        if function is None:
            return frozenset().union(*values, *named.values())
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        if owner is not None and "staticmethod" not in {
            getattr(item, "id", "") for item in function.decorator_list
        }:
            names = names[1:]
        holds = dict(zip(names, values, strict=False))
        holds.update({name: held for name, held in named.items() if name is not None})
        own_name = "" if owner is None else first_name(function)
        known = self._owner if owner is None else owner
        walk = _Walk(known, self._uses, holds, self._calls, own_name, method)
        with self._calls.entered(owner, method):
            walk.run(function.body)
        return walk.returned
