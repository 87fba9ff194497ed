"""What names stand for in one file: scopes, imports, definitions, callers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tclint.source.names.frameworks import names
from tclint.source.names.queries import bound, leaves
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Import,
    Name,
    Tables,
    dotted,
)

_FOLLOWED = 4
"""Names followed to where values are made."""


@dataclass
class Bindings:
    """Answers about one file's names; keeps what it has computed."""

    tables: Tables
    _assignments: dict[int, dict[str, list[Assignment]]] = field(default_factory=dict, repr=False)
    _imports: dict[int, dict[str, list[Import]]] = field(default_factory=dict, repr=False)
    _owners: dict[tuple[int, str], Function | None] = field(default_factory=dict, repr=False)
    _qualified: dict[tuple[int, str], tuple[str, ...]] = field(default_factory=dict, repr=False)
    _definitions: dict[tuple[int, str], tuple[list[tuple[Function, Assignment]], bool]] = field(
        default_factory=dict, repr=False
    )

    # -- scopes

    def scopes(self, function: Function) -> Iterator[Function]:
        """The function and the scopes whose names it sees, innermost first."""
        yield function
        index = function.parent
        while index >= 0:
            outer = self.tables.functions[index]
            # A method does not see its class's names; a class body does see its own.
            if outer.kind != "class":
                yield outer
            index = outer.parent

    def assignments(self, function: Function, name: str) -> list[Assignment]:
        """Assignments to a dotted name directly in a scope, in order."""
        known = self._assignments.get(function.index)
        if known is None:
            known = {}
            for event in function.assignments:
                for target in event.targets:
                    known.setdefault(target, []).append(event)
            self._assignments[function.index] = known
        return known.get(name, [])

    def _imported(self, function: Function, name: str) -> list[Import]:
        known = self._imports.get(function.index)
        if known is None:
            known = {}
            for item in function.imports:
                if item.name == "*":
                    for star in names().stars.get(item.qualified, ()):
                        known.setdefault(star, []).append(
                            Import(star, f"{item.qualified}.{star}", item.block)
                        )
                known.setdefault(item.name, []).append(item)
            if "torch" not in known and "*" in known and not function.index:
                # `from common import *`: what a module of the project has imported.
                known["torch"] = [Import("torch", "torch", known["*"][0].block)]
            self._imports[function.index] = known
        return known.get(name, [])

    def owner(self, function: Function, name: str) -> Function | None:
        """The scope that binds a plain name as `function` sees it; None for a builtin or unknown name."""
        key = function.index, name
        if key not in self._owners:
            self._owners[key] = self._owner(function, name)
        return self._owners[key]

    def _owner(self, function: Function, name: str) -> Function | None:
        for scope in self.scopes(function):
            if name in scope.outer_names:
                continue
            if (
                self._imported(scope, name)
                or any(parameter.name == name for parameter in scope.parameters)
                or self.assignments(scope, name)
                or name in self.tables.children.get(scope.index, {})
            ):
                return scope
        return None

    def qualified(self, function: Function, name: str) -> tuple[str, ...]:
        """Fully qualified names that a dotted name can stand for through imports; empty when it is not
        an import. Several for `try: from a import x` / `except ImportError: from b import x`."""
        key = function.index, name
        known = self._qualified.get(key)
        if known is None:
            known = self._qualified[key] = self._qualify(function, name)
        return known

    def _qualify(self, function: Function, name: str) -> tuple[str, ...]:
        root, dot, rest = name.partition(".")
        scope = self.owner(function, root)
        if scope is None:
            return ()
        if any(parameter.name == root for parameter in scope.parameters):
            return ()
        candidates = tuple(dict.fromkeys(item.qualified + dot + rest for item in self._imported(scope, root)))
        if candidates or not rest:
            return candidates
        # `amp = torch.cuda.amp`
        written = self.assignments(scope, root)
        if len(written) != 1 or written[0].operator or written[0].unpacked:
            return ()
        value = written[0].value
        if not isinstance(value, Name) or "." not in value.dotted or value.dotted.startswith(("self.", name)):
            return ()
        top = value.dotted.partition(".")[0]
        inner = self.owner(scope, top)
        known = self._imported(inner, top) if inner is not None else []
        return tuple(f"{item.qualified}.{value.dotted.partition('.')[2]}.{rest}" for item in known)

    def called(self, function: Function, call: Call) -> tuple[str, ...]:
        """Qualified names of what a call calls."""
        name = dotted(call.function)
        return self.qualified(function, name) if name else ()

    def local_functions(self, function: Function, called: Expression) -> tuple[Function, ...]:
        """Functions of this file that a call's function expression can mean: `helper`, `self.helper`."""
        name = dotted(called)
        if not name:
            return ()
        root, _, rest = name.partition(".")
        if not rest:
            scope = self.owner(function, root)
            if scope is None or any(parameter.name == root for parameter in scope.parameters):
                return ()
            found = self.tables.children.get(scope.index, {}).get(root, ())
            return tuple(self.tables.functions[index] for index in found)
        if root in ("self", "cls") and "." not in rest:
            owner = self.tables.class_of(function)
            if owner is not None:
                found = self.tables.children.get(owner.index, {}).get(rest, ())
                return tuple(self.tables.functions[index] for index in found)
        return ()

    # -- what calls pass

    @cached_property
    def callers(self) -> dict[int, list[tuple[Function, CallEvent]]]:
        """Index of a function or class -> calls of it in this file."""
        found: dict[int, list[tuple[Function, CallEvent]]] = {}
        for function, event in self.tables.calls:
            for local in self.local_functions(function, event.call.function):
                found.setdefault(local.index, []).append((function, event))
        return found

    def called_as(self, function: Function) -> Function:
        """What is called to run a function: of a constructor its class."""
        is_constructor = function.name == "__init__" and function.parent >= 0
        return self.tables.functions[function.parent] if is_constructor else function

    def parameters(self, function: Function) -> list[str]:
        """The names that a call's positional arguments fill, in order."""
        names = [item.name for item in function.parameters if not item.star]
        is_method = function.parent >= 0 and self.tables.functions[function.parent].kind == "class"
        return names[1:] if is_method and Name("staticmethod") not in function.decorators else names

    def passed(self, function: Function, parameter: str) -> Iterator[tuple[Function, Expression]]:
        """(caller, argument) of what functions of this file pass for a parameter."""
        parameters = self.parameters(function)
        if parameter in {item.name for item in function.parameters}:
            for caller, event in self.callers.get(self.called_as(function).index, ()):
                value = bound(event.call, parameters).get(parameter)
                if value is not None:
                    yield caller, value

    # -- where names get their values

    def definitions(self, function: Function, name: str) -> tuple[list[tuple[Function, Assignment]], bool]:
        """Assignments that can give a dotted name its value, and whether these are all there are.

        Attributes of `self` are looked up in every method of the class.
        """
        key = function.index, name
        known = self._definitions.get(key)
        if known is None:
            known = self._definitions[key] = self._define(function, name)
        return known

    def _define(self, function: Function, name: str) -> tuple[list[tuple[Function, Assignment]], bool]:
        root, dot, rest = name.partition(".")
        if dot and root in ("self", "cls"):
            owner = self.tables.class_of(function)
            if owner is None:
                return [], False
            found = [(owner, item) for item in self.assignments(owner, rest)]
            for member in self.tables.functions:
                if member.kind == "function" and self.tables.class_of(member) is owner:
                    found.extend((member, item) for item in self.assignments(member, name))
            # A base class may assign it as well, but what the class itself says goes first.
            return found, bool(found)
        if dot:
            scope = self.owner(function, root)
            return ([(scope, item) for item in self.assignments(scope, name)] if scope else []), False
        scope = self.owner(function, name)
        if scope is None:
            return [], False
        complete = not any(parameter.name == name for parameter in scope.parameters)
        if scope.index == 0 and (self._declared_global(name) or self._globals_change):
            complete = False
        found = [(scope, item) for item in self.assignments(scope, name)]
        return found, complete

    def _declared_global(self, name: str) -> bool:
        return name in self._outer_names

    @cached_property
    def _outer_names(self) -> frozenset[str]:
        return frozenset[str]().union(*(function.outer_names for function in self.tables.functions))

    @property
    def _globals_change(self) -> bool:
        # `exec(open("configurator.py").read())` and `globals().update(...)` overwrite module constants.
        return "exec" in self.tables.identifiers or "globals" in self.tables.identifiers

    def origins_of(
        self, function: Function, name: str, depth: int = _FOLLOWED
    ) -> Iterator[tuple[Function, Expression]]:
        """Values that a name can have, with the scopes they are written in, followed through other names,
        through choices, and through the arguments that functions of the file pass for parameters."""
        if depth <= 0 or not name:
            return
        if any(parameter.name == name for parameter in function.parameters):
            for caller, value in self.passed(function, name):
                yield from self._followed(caller, value, depth)
            return
        for scope, item in self.definitions(function, name)[0]:
            yield from self._followed(scope, item.value, depth)

    def _followed(
        self, scope: Function, value: Expression, depth: int
    ) -> Iterator[tuple[Function, Expression]]:
        for leaf in leaves(value):
            if isinstance(leaf, Name) and not self.qualified(scope, leaf.dotted):
                yield from self.origins_of(scope, leaf.dotted, depth - 1)
            else:
                yield scope, leaf
