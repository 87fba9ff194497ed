"""Loss scaling in the order in which it happens: what functions do with scalers, gradients and optimizers.

Calls of functions of the same file are followed, so that a cycle that is split over methods reads as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from tclint.source.facts.amp import Amp
from tclint.source.facts.scaling_reader import PROTOCOL, Reader
from tclint.source.facts.scaling_view import Op, View
from tclint.source.names.frameworks import names
from tclint.source.names.project import Project
from tclint.source.names.queries import bound, has_star, leaves, names_in
from tclint.source.names.readers import direct_names
from tclint.source.syntax.tables import (
    Call,
    Collection,
    Expression,
    Function,
    Name,
    Other,
    Return,
    dotted,
    method_of,
    render,
)

_FOLLOW_DEPTH = 4


class Made(NamedTuple):
    """A scaler that the file makes."""

    qualified: str
    arguments: Mapping[str, Expression]
    """By parameter."""
    enabled: bool | None
    """None: decided at run time."""
    function: int
    block: int
    node_id: int


class Scaling:
    """Answers about loss scaling in one file."""

    def __init__(self, amp: Amp, project: Project[Any]) -> None:
        self.amp = amp
        self.project = project
        self.resolver = amp.resolver
        self.tables = amp.tables
        self._origins: dict[tuple[int, str, int], tuple[list[Made], bool]] = {}

    # -- scalers

    def made_by(self, function: Function, call: Call) -> Made | None:
        """The scaler that a call makes; None when it makes something else."""
        for qualified in self.resolver.called(function, call):
            parameters = names().scaler_classes.get(qualified)
            if parameters is None:
                continue
            given = bound(call, parameters)
            enabled: bool | None = True
            if "enabled" in given:
                possible = self.resolver.evaluate(function, given["enabled"])
                truths = {bool(value) for value in possible.values}
                enabled = truths.pop() if possible.complete and len(truths) == 1 else None
            elif has_star(call):
                enabled = None
            return Made(qualified, given, enabled, function.index, 0, call.node_id)
        return None

    @cached_property
    def made(self) -> list[Made]:
        """Every scaler that the file makes, in order."""
        found = []
        for function, event in self.tables.calls:
            made = self.made_by(function, event.call)
            if made is not None:
                found.append(made._replace(block=event.block))
        return found

    def origins(self, function: Function, name: str, depth: int = _FOLLOW_DEPTH) -> tuple[list[Made], bool]:
        """Scalers that a name can stand for, and whether anything else that is called could be it."""
        key = function.index, name, depth
        known = self._origins.get(key)
        if known is None:
            known = self._origins[key] = self._find_origins(function, name, depth)
        return known

    def _find_origins(self, function: Function, name: str, depth: int) -> tuple[list[Made], bool]:
        found: list[Made] = []
        others = False
        if depth > 0 and any(parameter.name == name for parameter in function.parameters):
            for caller, argument in self.resolver.passed(function, name):
                same = name if caller is function else ""
                inner, other = self._origins_of_value(caller, argument, same, depth)
                found.extend(inner)
                others = others or other or not inner
            return found, others
        definitions, _ = self.resolver.definitions(function, name)
        for scope, item in definitions:
            if item.unpacked or item.operator:
                continue
            inner, other = self._origins_of_value(scope, item.value, name, depth)
            found.extend(inner)
            others = others or other
        return found, others

    def _origins_of_value(
        self, scope: Function, value: Expression, name: str, depth: int
    ) -> tuple[list[Made], bool]:
        found: list[Made] = []
        others = False
        for leaf in _leaves(value):
            if isinstance(leaf, Call):
                made = self.made_by(scope, leaf)
                if made is not None:
                    found.append(made)
                    continue
                returned, other = self._returned_by(scope, leaf, depth)
                found.extend(returned)
                others = others or other
            elif isinstance(leaf, Name) and depth > 0 and (leaf.dotted != name or scope.index == 0):
                inner, other = self.origins(scope, leaf.dotted, depth - 1)
                found.extend(inner)
                others = others or other
        return found, others

    def _returned_by(self, scope: Function, call: Call, depth: int) -> tuple[list[Made], bool]:
        """Scalers that a function of the file returns; anything else that is called counts as another."""
        helpers = self.resolver.local_functions(scope, call.function)
        if len(helpers) != 1 or helpers[0].kind != "function" or depth <= 0:
            return [], True
        found: list[Made] = []
        others = False
        for event in helpers[0].events:
            if isinstance(event, Return) and not event.is_yield:
                inner, other = self._origins_of_value(helpers[0], event.value, "", depth - 1)
                found.extend(inner)
                others = others or other
        return found, others or not found

    @cached_property
    def _protocol(self) -> dict[str, set[str]]:
        """Last part of a receiver's name -> methods of a scaler that are called on it; '' for itself."""
        found: dict[str, set[str]] = {}
        for _, event in self.tables.calls:
            receiver, method = method_of(event.call)
            if receiver is None:
                found.setdefault(method, set()).add("")
            elif method in PROTOCOL:
                found.setdefault(_last(receiver), set()).add(method)
            else:
                # `self.loss_scaler(loss, optimizer)`: an object that does it all.
                found.setdefault(method, set()).add("")
        return found

    def is_scaler(self, function: Function, expression: Expression) -> bool:
        """Whether it is a GradScaler, or used as one without the file saying what it is."""
        last = _last(expression)
        used = self._protocol.get(last, set())
        name = dotted(expression)
        if name:
            made, others = self.origins(function, name)
            if made:
                return True
            if others and not self._made_elsewhere(function, name):
                return False
        if "scaler" not in last.lower() or "" in used:
            return False
        return "unscale_" in used or "scale" in used or {"step", "update"} <= used

    def _made_elsewhere(self, function: Function, name: str) -> bool:
        """Made by a class called GradScaler whose module is not known, or by a function of another file
        that is named for it: `get_scaler()`."""
        definitions, _ = self.resolver.definitions(function, name)
        for scope, item in definitions:
            for leaf in _leaves(item.value):
                if isinstance(leaf, Call):
                    if self.resolver.local_functions(scope, leaf.function):
                        return False
                    if self._only_looks_like_one(scope, leaf):
                        return False
                    maker = render(leaf.function).rpartition(".")[2]
                    if maker.endswith("GradScaler") or (maker.islower() and maker.endswith("scaler")):
                        return True
        return False

    def _only_looks_like_one(self, scope: Function, call: Call) -> bool:
        """A class of another file of the project that does not derive from GradScaler: its methods may do
        something else, or nothing."""
        for qualified in self.resolver.called(scope, call):
            found = self.project.definition(qualified, (b"class ",)) if "." in qualified else None
            if found is not None and found[1].kind == "class":
                return not any("GradScaler" in render(base) for base in found[1].bases)
        return False

    def enabled(self, function: Function, name: str) -> bool | None:
        """Whether a scaler is on; None where that is decided at run time or elsewhere."""
        made, others = self.origins(function, name)
        known = {item.enabled for item in made}
        return known.pop() if len(known) == 1 and not others else None

    # -- what functions do

    @cached_property
    def views(self) -> list[View]:
        """Of every function that does something with scalers, gradients or optimizers."""
        found = []
        for function in self.tables.functions:
            if function.kind != "class":
                view = View(self.amp, function)
                Reader(self, view).run()
                if view.ops:
                    found.append(view)
        return found

    @cached_property
    def all_known(self) -> bool:
        """Every name in the file that speaks of scaling is a GradScaler that the file makes and keeps to
        itself, or a parameter for one."""
        words = names().scaler_words
        bound = {"GradScaler", "scaler", "grad_scaler", *self._names_made}
        for identifier in self.tables.identifiers:
            squeezed = identifier.lower().replace("_", "")
            if identifier not in bound and any(word in squeezed for word in words):
                return False
        if not self.made:
            return self._only_unused_parameters
        for function in self.tables.functions:
            if function.name in ("scaler", "grad_scaler"):
                return False
            if any(parameter.name in bound for parameter in function.parameters):
                return False
        return not any(view.of("escape") for view in self.views)

    @cached_property
    def _only_unused_parameters(self) -> bool:
        """`def train(model, scaler, ...)` that reads no scaler, and imports of GradScaler that nothing uses:
        all that the file says of one."""
        spoken = ("GradScaler", "scaler", "grad_scaler")
        imported = {item.name for function in self.tables.functions for item in function.imports}
        if "GradScaler" in self.tables.identifiers - imported:
            return False
        for function in self.tables.functions:
            if function.name in spoken:
                return False
            read = {name for event in function.events for name in direct_names(event)}
            defaults = (item.default for item in function.parameters)
            for value in (*function.decorators, *function.bases, *defaults):
                if value is not None:
                    read.update(names_in(value))
            for block in function.blocks:
                values = (block.condition, *(item.value for item in block.items))
                read.update(name for value in values if value is not None for name in names_in(value))
            bound = {target for event in function.assignments for target in event.targets}
            if any(part in spoken for name in read | bound for part in name.split(".")):
                return False
        return True

    @cached_property
    def _names_made(self) -> frozenset[str]:
        """Last parts of the names that the file binds to scalers it makes, and to nothing else."""
        made: set[str] = set()
        others: set[str] = set()
        for function, event in self.tables.assignments:
            own = isinstance(event.value, Call) and self.made_by(function, event.value) is not None
            lasts = {target.rpartition(".")[2] for target in event.targets}
            (made if own and not event.unpacked else others).update(lasts)
        return frozenset(made - others)

    def is_near(self, node_id: int, always_float16: bool = False) -> bool:
        """Whether the code that runs a backward call also uses a scaler, so that the call may be the branch
        without one, or a mistake of its own.

        Not where both always run and a plain step of an optimizer follows: what it applies was not scaled.
        Nor where its loss always comes from float16, and the branches are about something else.
        """
        for view in self.views:
            if not any(place.node_id == node_id for op in view.ops for place in op.places):
                continue
            scaled = view.of("scaled_backward", "unscale", "scaler_step", "escape")
            plain = next((op for op in view.of("backward") if op.node_id == node_id), None)
            if not scaled:
                continue
            if plain is None or not view.after(plain, "step") or view.of("escape"):
                return True
            if any(self._by_choice(view, plain, op, always_float16) for op in scaled):
                return True
        return False

    def _by_choice(self, view: View, one: Op, other: Op, always_float16: bool) -> bool:
        if view.decided_by_precision(one, other) or view.decided_by_precision(other, one):
            return True
        if not (view.mutually_exclusive(one, other) or view.mutually_exclusive(other, one)):
            return False
        return not (always_float16 and view.demand_opposites(one, other))

    def scope_of(self, view: View, op: Op) -> Function:
        """The function that names an op's scaler: one that the viewed function calls may make its own."""
        root = op.scaler.partition(".")[0]
        for place in reversed(op.places[1:]):
            function = self.tables.functions[place.function]
            given = any(parameter.name == root for parameter in function.parameters)
            if not given and self.resolver.owner(function, root) is function:
                return function
        return view.function

    def origins_of(self, view: View, op: Op) -> tuple[list[Made], bool]:
        """Scalers that an op's can be, and whether anything else that is called could be it."""
        return self.origins(self.scope_of(view, op), op.scaler)

    def is_off(self, view: View, op: Op) -> bool:
        """The scaler of an op is known to be disabled."""
        return self.enabled(self.scope_of(view, op), op.scaler) is False


def _leaves(expression: Expression) -> Iterator[Expression]:
    """What a value can be, or hold."""
    for leaf in leaves(expression):
        match leaf:
            case Collection("list" | "tuple" | "dict", items, _):
                for item in items:
                    yield from _leaves(item)
            case Other("comprehension", parts) if parts:
                yield from _leaves(parts[0])
            case _:
                yield leaf


def _last(expression: Expression) -> str:
    text = render(expression).partition("[")[0]
    return text.rpartition(".")[2]
