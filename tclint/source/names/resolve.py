"""What names stand for and which values they can have, as far as the file itself tells."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tclint.source.names.frameworks import names
from tclint.source.names.queries import bound
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Choice,
    Collection,
    Expression,
    Function,
    Import,
    Literal,
    Name,
    Operation,
    Return,
    Subscript,
    Tables,
    dotted,
    method_of,
)

_DEPTH = 12
"""Assignments followed in a row before giving up; chains in real programs are shorter than 6."""

_PARSES = ("parse_args", "parse_known_args")

_ARITHMETIC: dict[str, Callable[..., object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Symbol(NamedTuple):
    """An imported thing as a value: Symbol('torch.float16')."""

    qualified: str


DTYPES = {
    "torch.float16": "float16",
    "torch.half": "float16",
    "torch.bfloat16": "bfloat16",
    "torch.float32": "float32",
    "torch.float": "float32",
    "torch.float64": "float64",
    "torch.double": "float64",
}


def dtype_of(value: object) -> str | None:
    """'float16' of Symbol('torch.half')."""
    return DTYPES.get(value.qualified) if isinstance(value, Symbol) else None


class Possible(NamedTuple):
    """The values that an expression can have."""

    values: tuple[object, ...]
    complete: bool
    """No other value is possible; False for parameters, options and anything read at run time."""

    @property
    def certain(self) -> bool:
        """Exactly one value is possible."""
        return self.complete and len(self.values) == 1

    @property
    def only(self) -> object:
        """The value where exactly one is possible; None (which may be that value) otherwise."""
        return self.values[0] if self.certain else None


UNKNOWN = Possible((), False)


@dataclass
class Resolver:
    """Answers about one file's tables; keeps what it has computed."""

    tables: Tables
    _assignments: dict[int, dict[str, list[Assignment]]] = field(default_factory=dict, repr=False)
    _imports: dict[int, dict[str, list[Import]]] = field(default_factory=dict, repr=False)

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
        return any(name in function.outer_names for function in self.tables.functions)

    @property
    def _globals_change(self) -> bool:
        # `exec(open("configurator.py").read())` and `globals().update(...)` overwrite module constants.
        return "exec" in self.tables.identifiers or "globals" in self.tables.identifiers

    # -- values

    def evaluate(self, function: Function, expression: Expression, depth: int = _DEPTH) -> Possible:
        """The values an expression can have. Devices are given by their type: 'cuda', 'cpu'."""
        if depth <= 0:
            return UNKNOWN
        match expression:
            case Literal(value):
                return Possible((value,), True)
            case Name(name):
                return self._evaluate_name(function, name, depth)
            case Choice(condition, first, second):
                tested = self.evaluate(function, condition, depth - 1)
                if tested.certain:
                    return self.evaluate(function, first if tested.values[0] else second, depth - 1)
                return _union(self.evaluate(function, part, depth - 1) for part in (first, second))
            case Operation(symbol, operands):
                return self._evaluate_operation(function, symbol, operands, depth)
            case Subscript(Collection("dict", items, keys), index):
                return self._look_up(function, items, keys, index, depth)
            case Subscript(Name(name), index):
                found, complete = self.definitions(function, name)
                if complete and len(found) == 1 and isinstance(found[0][1].value, Collection):
                    table = found[0][1].value
                    if table.kind == "dict" and not found[0][1].operator:
                        return self._look_up(found[0][0], table.items, table.keys, index, depth)
                return UNKNOWN
            case Call():
                return self._evaluate_call(function, expression, depth)
            case _:
                return UNKNOWN

    def _evaluate_name(self, function: Function, name: str, depth: int) -> Possible:
        symbols = self.qualified(function, name)
        if symbols:
            return Possible(tuple(Symbol(symbol) for symbol in symbols), len(symbols) == 1)
        found, complete = self.definitions(function, name)
        if found:
            if any(item.operator or item.unpacked for _, item in found):
                return UNKNOWN
            values = _union(self.evaluate(scope, item.value, depth - 1) for scope, item in found)
            return values if complete else Possible(values.values, False)
        head, dot, last = name.rpartition(".")
        if dot and last == "type":
            device = self.evaluate(function, Name(head), depth - 1)
            if all(isinstance(value, str) for value in device.values):
                return device
        if dot:
            return self._option(function, head, last, depth)
        scope = self.owner(function, name)
        if scope is not None:
            for parameter in scope.parameters:
                if parameter.name == name and parameter.default is not None:
                    values = self.evaluate(scope, parameter.default, depth - 1)
                    return Possible(values.values, False)
        return UNKNOWN

    def _option(self, function: Function, head: str, last: str, depth: int) -> Possible:
        """The default of `args.name` (argparse), or of `config.name` where config is a class of this file
        or an object of one."""
        for maker in self.local_functions(function, Name(head)):
            if maker.kind == "class":
                return self._field(maker, last, depth)
        for scope, item in self.definitions(function, head)[0]:
            if isinstance(item.value, Name):
                for maker in self.local_functions(scope, item.value):
                    if maker.kind == "class":
                        return self._field(maker, last, depth)
            if not isinstance(item.value, Call):
                continue
            _, method = method_of(item.value)
            if method in _PARSES:
                return self._argparse_default(last, depth)
            for maker in self.local_functions(scope, item.value.function):
                if maker.kind == "class":
                    return self._field(maker, last, depth)
                # `args = get_args()`, which ends in `return parser.parse_args()`
                returned = (event.value for event in maker.events if isinstance(event, Return))
                if any(isinstance(value, Call) and method_of(value)[1] in _PARSES for value in returned):
                    return self._argparse_default(last, depth)
        return UNKNOWN

    def _field(self, owner: Function, name: str, depth: int) -> Possible:
        """The values that a class gives an attribute in its body; others can be assigned elsewhere."""
        fields = self.assignments(owner, name)
        values = _union(self.evaluate(owner, field.value, depth - 1) for field in fields)
        return Possible(values.values, False)

    def argparse_default(self, destination: str) -> Possible:
        """The default of a command-line option that some parser of the file defines."""
        return self._argparse_default(destination, _DEPTH)

    def _argparse_default(self, destination: str, depth: int) -> Possible:
        for function, event in self.tables.calls:
            if method_of(event.call)[1] != "add_argument":
                continue
            options = {
                argument.keyword: argument.value for argument in event.call.arguments if argument.keyword
            }
            flags = [
                argument.value.value
                for argument in event.call.arguments
                if not argument.keyword and isinstance(argument.value, Literal)
            ]
            written = {str(flag).lstrip("-").replace("-", "_") for flag in flags}
            if options.get("dest") == Literal(destination) or destination in written:
                default = options.get("default")
                if default is not None:
                    return Possible(self.evaluate(function, default, depth - 1).values, False)
                action = options.get("action")
                if action in (Literal("store_true"), Literal("store_false")):
                    return Possible((action == Literal("store_false"),), False)
        return UNKNOWN

    def _evaluate_operation(
        self, function: Function, symbol: str, operands: tuple[Expression, ...], depth: int
    ) -> Possible:
        known = [self.evaluate(function, operand, depth - 1) for operand in operands]
        if symbol == "not":
            if known[0].complete and known[0].values:
                return _distinct((not value for value in known[0].values), True)
            return UNKNOWN
        if symbol in ("and", "or"):
            decisive = symbol == "or"
            for value in known:
                if value.certain and bool(value.values[0]) is decisive:
                    return Possible((value.values[0],), True)
            return _union(known) if all(value.complete for value in known) else UNKNOWN
        if not all(value.certain for value in known):
            return UNKNOWN
        values = [value.values[0] for value in known]
        if symbol in ("is", "is not"):
            same = values[0] == values[1]
            return Possible((same if symbol == "is" else not same,), True)
        if symbol == "neg" and isinstance(values[0], int | float):
            return Possible((-values[0],), True)
        if symbol == "**":
            base, exponent = values
            small = isinstance(base, int | float) and isinstance(exponent, int) and abs(exponent) <= 64
            return Possible((base**exponent,), True) if small and base else UNKNOWN  # type: ignore[operator]
        compute = _ARITHMETIC.get(symbol)
        numbers = all(isinstance(value, int | float) for value in values)
        if compute is None or not (numbers or symbol in ("==", "!=")):
            return UNKNOWN
        try:
            return Possible((compute(*values),), True)
        except (ArithmeticError, TypeError, ValueError):
            return UNKNOWN

    def _look_up(
        self,
        function: Function,
        items: tuple[Expression, ...],
        keys: tuple[Expression | None, ...],
        index: Expression,
        depth: int,
    ) -> Possible:
        if any(key is None for key in keys):
            return UNKNOWN
        wanted = self.evaluate(function, index, depth - 1)
        if wanted.complete:
            chosen = [
                item
                for key, item in zip(keys, items, strict=True)
                if isinstance(key, Literal) and key.value in wanted.values
            ]
            if chosen:
                return _union(self.evaluate(function, item, depth - 1) for item in chosen)
        return _union(self.evaluate(function, item, depth - 1) for item in items)

    def _evaluate_call(self, function: Function, call: Call, depth: int) -> Possible:
        called = self.called(function, call)
        if "torch.device" in called and call.arguments:
            values = self.evaluate(function, call.arguments[0].value, depth - 1)
            return _distinct(
                (value.split(":", 1)[0] if isinstance(value, str) else value for value in values.values),
                values.complete,
            )
        if dotted(call.function) == "getattr" and len(call.arguments) >= 2:
            base = self.evaluate(function, call.arguments[0].value, depth - 1)
            name = self.evaluate(function, call.arguments[1].value, depth - 1)
            if base.certain and isinstance(base.values[0], Symbol) and name.complete:
                module = base.values[0].qualified
                return Possible(tuple(Symbol(f"{module}.{value}") for value in name.values), True)
        return UNKNOWN


def _union(several: Iterable[Possible]) -> Possible:
    values: list[object] = []
    complete = True
    for possible in several:
        values.extend(possible.values)
        complete = complete and possible.complete
    return _distinct(values, complete)


def _distinct(values: Iterable[object], complete: bool) -> Possible:
    found: list[object] = []
    for value in values:
        # 1 == True, yet they are different values.
        if not any(value == other and type(value) is type(other) for other in found):
            found.append(value)
    return Possible(tuple(found), complete and bool(found))
