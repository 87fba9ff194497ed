"""Which of the models of a run a training script builds, from imports and calls; nothing is run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeAlias

from tclint.config.settings import Settings
from tclint.core.target import LIBRARIES
from tclint.source.context import SourceContext
from tclint.source.names.project import Project
from tclint.source.syntax.tables import (
    Assignment,
    Attribute,
    Call,
    CallEvent,
    Closure,
    Expression,
    Function,
    Literal,
    Name,
    Return,
    dotted,
    parts_of,
)

Thing: TypeAlias = tuple[str, str]
"""What a name stands for: (file, name) in the project; else ('', full name), ('timm', 'resnet50')."""
_Scope: TypeAlias = tuple[SourceContext, Function]

_MOST_SCOPES = 3_000
"""Functions and classes that one script is followed through."""
_DEPTH = 8
_NO_MODELS = ("Loss", "Criterion")
"""Ends of names of modules that are trained with a model and are none."""


class Reached:
    """What a script uses: the functions and classes that its own code leads to, and names of libraries."""

    def __init__(self, script: SourceContext) -> None:
        self._things: set[Thing] = set()
        self._models: set[str] = set()
        self._left = _MOST_SCOPES
        self._follow(_starts(script))
        if not self._models:
            # A file of training loops is told which model by whoever imports it.
            for path in script.neighbours.importing(""):
                caller = script.project.context_of(path)
                if caller is not None:
                    self._follow(_starts(caller))

    def builds(self, model: Model) -> bool:
        """Whether what is traced for the target is used here, whatever way it is built."""
        return not self._things.isdisjoint(model.things)

    @property
    def models(self) -> list[str]:
        """Names of the project's own classes of models among it, sorted."""
        return sorted(self._models)

    def _follow(self, starts: Iterable[_Scope]) -> None:
        waiting = list(starts)
        while waiting and self._left > 0:
            context, scope = waiting.pop()
            if (thing := _thing(context, scope)) in self._things:
                continue
            self._things.add(thing)
            self._left -= 1
            if _is_model(context, scope):
                self._models.add(scope.name)
            for inner in _within(context, scope):
                for expression in _expressions(inner):
                    for name in _names(expression):
                        waiting.extend(_meant(context, inner, name))
                for event in inner.calls:
                    self._things.update(_library_things(context, inner, event.call))


class Model:
    """A target of the run, and what it builds."""

    def __init__(self, target: str, settings: Settings) -> None:
        self._target = target
        self._settings = settings

    @cached_property
    def things(self) -> frozenset[Thing]:
        """The target itself, and the classes whose instances it returns; empty where it is not found."""
        where, _, name = self._target.rpartition(":")
        if where in LIBRARIES:
            return frozenset({(where, name)})
        context = self._file(where)
        if context is None:
            return frozenset({("", f"{where}.{name}")})
        things: set[Thing] = set()
        for place, scope in _meant(context, context.tables.module, name):
            things.add(_thing(place, scope))
            things |= _returned(place, scope, _DEPTH)
        return frozenset(things)

    def _file(self, where: str) -> SourceContext | None:
        here = os.path.join(os.getcwd(), "<target>")
        project = Project(here, self._settings, SourceContext.of)
        if where.endswith(".py"):
            return project.context_of(os.path.abspath(where))
        return project.module(where)


def _thing(context: SourceContext, scope: Function) -> Thing:
    return os.path.realpath(context.path), scope.qualified_name


def _starts(script: SourceContext) -> list[_Scope]:
    """The module's body where it calls functions of the file; else, being imported, every function."""
    tables = script.tables
    module = tables.module
    called = any(
        function.kind == "function"
        for event in module.calls
        for function in script.resolver.local_functions(module, event.call.function)
    )
    own = () if called else (f for f in tables.functions[1:] if f.kind == "function" and f.parent == 0)
    # The class of a Lightning module is handed to a trainer that another file makes.
    trained = (
        tables.functions[function.parent]
        for function in tables.functions
        if function.name == "training_step" and function.parent > 0
    )
    return [(script, scope) for scope in (module, *own, *trained)]


def _within(context: SourceContext, scope: Function) -> Iterator[Function]:
    """A scope with everything written inside it; of a module only its body."""
    yield scope
    if scope.index == 0:
        return
    for functions in context.tables.children.get(scope.index, {}).values():
        for index in functions:
            yield from _within(context, context.tables.functions[index])


def _expressions(scope: Function) -> Iterator[Expression]:
    yield from scope.bases
    for parameter in scope.parameters:
        yield from (part for part in (parameter.default, parameter.annotation) if part is not None)
    for event in scope.events:
        if isinstance(event, CallEvent):
            yield event.call
        elif isinstance(event, Assignment | Return):
            yield event.value


def _names(expression: Expression) -> Iterator[str]:
    """'a', 'a.b' and 'a.b.c' of every `a.b.c` in an expression; what is only compared with does not count."""
    if isinstance(expression, Call) and dotted(expression.function) in ("isinstance", "issubclass"):
        return
    if isinstance(expression, Name):
        parts = expression.dotted.split(".")
        yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
    for part in parts_of(expression):
        yield from _names(part)


def _meant(context: SourceContext, scope: Function, name: str, depth: int = _DEPTH) -> Iterator[_Scope]:
    """Functions and classes of the project that a name can stand for, through tables of them as well."""
    found = list(context.definitions_of(scope, Name(name)))
    if not found and "." in name:
        outer, _, last = name.rpartition(".")
        for place, owner in context.definitions_of(scope, Name(outer)):
            inner = place.tables.children.get(owner.index, {}).get(last, ()) if owner.kind == "class" else ()
            found += [(place, place.tables.functions[index]) for index in inner]
    yield from found
    if found or depth <= 0 or "." in name:
        return
    # `MODELS = {"lm": LM}`, here or in the file that it is imported from.
    owner_scope = context.resolver.owner(scope, name)
    tables = [(context, owner_scope, name)] if owner_scope is not None and owner_scope.index == 0 else []
    for qualified in context.resolver.qualified(scope, name):
        module, _, last = qualified.rpartition(".")
        other = context.project.module(module) if module.strip(".") else None
        if other is not None:
            tables.append((other, other.tables.module, last))
    for place, module_scope, variable in tables:
        for item in place.resolver.assignments(module_scope, variable):
            for used in _names(item.value):
                if used != variable:
                    yield from _meant(place, module_scope, used, depth - 1)


def _is_model(context: SourceContext, scope: Function) -> bool:
    if scope.kind != "class" or scope.name.endswith(_NO_MODELS):
        return False
    methods = context.tables.children.get(scope.index, {})
    return "forward" in methods or "training_step" in methods


def _library_things(context: SourceContext, scope: Function, call: Call) -> Iterator[Thing]:
    called = context.resolver.called(scope, call)
    for qualified in called:
        if not qualified.startswith(("torch.", ".")):
            yield "", qualified
    name = dotted(call.function).rpartition(".")[2]
    first = call.arguments[0].value if call.arguments else None
    text = context.resolver.evaluate(scope, first).only if first is not None else None
    if isinstance(text, str) and "timm.create_model" in called:
        yield "timm", text
    elif isinstance(text, str) and name == "from_pretrained":
        yield "hf", text


def _returned(context: SourceContext, scope: Function, depth: int) -> set[Thing]:
    """The classes whose instances a builder returns, as far as its code shows."""
    if scope.kind == "class" or depth <= 0:
        return set()
    found: set[Thing] = set()
    for event in scope.events:
        if isinstance(event, Return):
            found |= _made(context, scope, event.value, depth)
    return found


def _made(context: SourceContext, scope: Function, value: Expression, depth: int) -> set[Thing]:
    if depth <= 0 or isinstance(value, Literal | Closure):
        return set()
    found: set[Thing] = set()
    if isinstance(value, Name):
        for inner, origin in context.resolver.origins_of(scope, value.dotted):
            if not isinstance(origin, Name):
                found |= _made(context, inner, origin, depth - 1)
        return found
    if not isinstance(value, Call):
        parts = parts_of(value)
        return set().union(*(_made(context, scope, part, depth - 1) for part in parts))
    if isinstance(value.function, Attribute):  # LM().half()
        return _made(context, scope, value.function.value, depth - 1)
    name = dotted(value.function)
    meant = list(_meant(context, scope, name)) if name else []
    if meant and depth > 1:
        found = {_thing(*one) for one in meant if one[1].kind == "class"}
        found = found.union(*(_returned(*one, depth - 1) for one in meant))
        if found:
            return found
    called = context.resolver.called(scope, value)
    if meant or any(one.startswith("torch.") for one in called):
        if any(one.startswith("torch.nn.") and not one.endswith("Parallel") for one in called):
            return set()  # the parts of a container are parts of other models, too
        # torch.compile(LM()), initialised(LM())
        return set().union(*(_made(context, scope, one.value, depth - 1) for one in value.arguments))
    receiver, _, _ = name.rpartition(".")
    if receiver and not context.resolver.qualified(scope, name):  # model.to(...)
        return _made(context, scope, Name(receiver), depth - 1)
    return set(_library_things(context, scope, value))
