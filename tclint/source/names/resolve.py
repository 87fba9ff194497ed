"""Which values names and expressions can have, as far as the file, and what it imports, tells."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tclint.source.names.bindings import Bindings
from tclint.source.names.queries import bound, has_star, keyword
from tclint.source.syntax.tables import (
    Argument,
    Call,
    Choice,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Return,
    Subscript,
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
class Resolver(Bindings):
    """Answers about one file's names and values.

    Args:
        elsewhere: the function or class that a qualified name is in another file of the project, or the
            module (its name, then that of the wanted variable), with that file's resolver.
    """

    elsewhere: Callable[[str], tuple[Resolver, Function] | None] = lambda _: None
    _parameters: dict[tuple[int, str], Possible] = field(default_factory=dict, repr=False)

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
            case Subscript(table, index):
                return self._look_up(function, table, index, depth)
            case Call():
                return self._evaluate_call(function, expression, depth)
            case _:
                return UNKNOWN

    def _evaluate_name(self, function: Function, name: str, depth: int) -> Possible:
        symbols = self.qualified(function, name) or self._starred(function, name)
        if symbols:
            constant = self._constant(symbols[0], depth) if len(symbols) == 1 else None
            return constant or Possible(tuple(Symbol(symbol) for symbol in symbols), len(symbols) == 1)
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
        return self._parameter(scope, name, depth) if scope is not None else UNKNOWN

    def _parameter(self, scope: Function, name: str, depth: int) -> Possible:
        """What the calls in this file pass for a parameter; without any, its default, which is a guess."""
        key = (scope.index, name)
        if key not in self._parameters:
            self._parameters[key] = UNKNOWN  # a function that calls itself
            default = next((item.default for item in scope.parameters if item.name == name), None)
            known = self.evaluate(scope, default, depth - 1) if default is not None else UNKNOWN
            parameters = self.parameters(scope)
            values = []
            for caller, event in self.callers.get(self.called_as(scope).index, ()):
                given = bound(event.call, parameters).get(name)
                if given is None:
                    values.append(UNKNOWN if has_star(event.call) else known)
                elif caller is not scope or given != Name(name):
                    values.append(self.evaluate(caller, given, depth - 1))
            found = _union(values) if values else Possible(known.values, False)
            self._parameters[key] = found if self._called_here_only(scope) else found._replace(complete=False)
        return self._parameters[key]

    def _called_here_only(self, function: Function) -> bool:
        """Nothing in this file but calls that are seen here runs it: neither a decorator, nor a caller that
        gets it as a value, nor an object that has it as a method."""
        called = self.called_as(function)
        in_class = called.parent > 0 and self.tables.functions[called.parent].kind == "class"
        if called.decorators or function.decorators or (in_class and not called.name.startswith("_")):
            return False
        return called.name not in self._handed_on

    @cached_property
    def _handed_on(self) -> frozenset[str]:
        """Names that calls get as arguments: `mp.spawn(train, ...)`."""
        return frozenset(
            dotted(argument.value).rpartition(".")[2]
            for _, event in self.tables.calls
            for argument in event.call.arguments
            if isinstance(argument.value, Name)
        )

    def _starred(self, function: Function, name: str) -> tuple[str, ...]:
        """`config.RATE` of a name that only `from config import *` can bring."""
        stars = [item.qualified for item in self.tables.module.imports if item.name == "*"]
        if not stars or "." in name or self.owner(function, name) is not None:
            return ()
        return tuple(found for star in stars if self.elsewhere(found := f"{star}.{name}") is not None)

    def _constant(self, qualified: str, depth: int) -> Possible | None:
        """The value of `config.RATE` that another file of the project assigns, or of `config.CFG.rate`, a
        field of its class; None for anything else."""
        found = self.elsewhere(qualified)
        owner, _, last = qualified.rpartition(".")
        if found is None and "." in owner:
            found = self.elsewhere(owner)
            if found is None or found[1].kind != "class":
                return None
            possible = found[0]._field(found[1], last, depth)
        elif found is None or found[1].index:
            return None
        else:
            possible = found[0].evaluate(found[1], Name(last), depth - 1)
        return possible if possible.values else None

    def _option(self, function: Function, head: str, last: str, depth: int) -> Possible:
        """The default of `args.name` (argparse), or of `config.name` where config is a class of the project
        or an object of one."""
        for maker in self._makers(function, Name(head)):
            return self._of_maker(maker, last, depth)
        scope = self.owner(function, head) if "." not in head else None
        for parameter in scope.parameters if scope is not None else ():
            if parameter.name == head and parameter.annotation is not None:
                for maker in self._makers(function, parameter.annotation):
                    if maker[1].kind == "class":
                        return self._of_maker(maker, last, depth)
        for scope, value in self.origins_of(function, head):
            if isinstance(value, Name):
                for maker in self._makers(scope, value):
                    return self._of_maker(maker, last, depth)
            if not isinstance(value, Call):
                continue
            if method_of(value)[1] in _PARSES:
                return self._argparse_default(last, depth)
            for maker in self._makers(scope, value.function):
                given = keyword(value, last)
                if given is not None:
                    return Possible(self.evaluate(scope, given, depth - 1).values, False)
                possible = self._of_maker(maker, last, depth)
                plain = (
                    maker[1].kind == "class"
                    and not value.arguments
                    and last not in self._set_on_objects
                    and not self._is_global(value)
                )
                return possible._replace(complete=plain and bool(possible.values))
        return UNKNOWN

    def _is_global(self, made: Call) -> bool:
        """A variable of the module, which other files may change, is bound to it."""
        return any(
            isinstance(event.value, Call) and event.value.node_id == made.node_id
            for event in self.tables.module.assignments
        )

    @cached_property
    def _set_on_objects(self) -> frozenset[str]:
        """Attributes that the file assigns, of `self` or of any other object."""
        targets = (target for _, event in self.tables.assignments for target in event.targets)
        return frozenset(target.rpartition(".")[2] for target in targets if "." in target)

    def _makers(self, function: Function, called: Expression) -> Iterator[tuple[Resolver, Function]]:
        """Functions and classes that an expression can mean, of this file or of the project."""
        local = self.local_functions(function, called)
        yield from ((self, item) for item in local)
        for qualified in self.qualified(function, dotted(called)) if not local and dotted(called) else ():
            found = self.elsewhere(qualified)
            if found is not None and found[1].index:
                yield found

    def _of_maker(self, maker: tuple[Resolver, Function], last: str, depth: int) -> Possible:
        """What a class gives an attribute, or `args = get_args()`, which ends in `return
        parser.parse_args()`, an option."""
        resolver, made = maker
        if made.kind == "class":
            return resolver._field(made, last, depth)
        returned = [value for event in made.events if isinstance(event, Return) for value in [event.value]]
        for value in returned:
            origins = resolver.origins_of(made, value.dotted) if isinstance(value, Name) else [(made, value)]
            for _, origin in origins:
                if isinstance(origin, Call) and method_of(origin)[1] in _PARSES:
                    return resolver._argparse_default(last, depth)
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
        table: Expression,
        index: Expression,
        depth: int,
        default: Expression | None = None,
    ) -> Possible:
        """The values of `{"fp16": torch.float16, ...}[index]`, by its name as well, and of `.get(index)`."""
        scope, entries = self._table(function, table)
        if entries is None:
            return UNKNOWN
        wanted = self.evaluate(function, index, depth - 1)
        if wanted.values and wanted.complete:
            chosen = [entries[value] for value in wanted.values if value in entries]
            if chosen:
                return _union(self.evaluate(scope, item, depth - 1) for item in chosen)
        values = [self.evaluate(scope, item, depth - 1) for item in entries.values()]
        if default is not None:
            values.append(self.evaluate(function, default, depth - 1))
        return _union(values)

    def _table(
        self, function: Function, table: Expression
    ) -> tuple[Function, dict[object, Expression] | None]:
        """The entries of a dict that is written out, here or where its name is assigned, by key; None where
        a key is no constant."""
        if isinstance(table, Name):
            found, complete = self.definitions(function, table.dotted)
            if not complete or len(found) != 1 or found[0][1].operator:
                return function, None
            function, table = found[0][0], found[0][1].value
        if isinstance(table, Call) and table.function == Name("dict") and not has_star(table):
            return function, {argument.keyword: argument.value for argument in table.arguments}
        if not isinstance(table, Collection) or table.kind != "dict":
            return function, None
        keys = [key.value for key in table.keys if isinstance(key, Literal)]
        if len(keys) < len(table.keys):
            return function, None
        return function, dict(zip(keys, table.items, strict=True))

    def spread(self, function: Function, call: Call) -> Call:
        """The call with `**options` written out, where that is a dict which the file writes out itself and
        changes nowhere."""
        arguments: list[Argument] = []
        for argument in call.arguments:
            is_fixed = argument.star == "**" and dotted(argument.value) not in self._changed
            entries = self._table(function, argument.value)[1] if is_fixed else None
            if entries is None or not all(isinstance(key, str) for key in entries):
                arguments.append(argument)
            else:
                arguments += [Argument(value, str(key)) for key, value in entries.items()]
        return call._replace(arguments=tuple(arguments))

    @cached_property
    def _changed(self) -> frozenset[str]:
        """Names of dicts on which a method that changes them is called, or that another call gets whole."""
        found = set()
        for _, event in self.tables.calls:
            receiver, method = method_of(event.call)
            if method in ("update", "setdefault", "pop", "popitem", "clear") and receiver is not None:
                found.add(dotted(receiver))
            found.update(dotted(argument.value) for argument in event.call.arguments if not argument.star)
        return frozenset(found)

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
        receiver, method = method_of(call)
        if method == "get" and receiver is not None and call.arguments:
            default = call.arguments[1].value if len(call.arguments) > 1 else Literal(None)
            return self._look_up(function, receiver, call.arguments[0].value, depth, default)
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
