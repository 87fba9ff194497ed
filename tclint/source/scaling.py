"""Loss scaling in the order in which it happens: what functions do with scalers, gradients and optimizers.

Calls of functions of the same file are followed, so that a cycle that is split over methods reads as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal as Choices
from typing import NamedTuple

from tclint.source.amp import Amp, Condition, exclusive
from tclint.source.frameworks import names
from tclint.source.tables import (
    Argument,
    Assignment,
    Call,
    CallEvent,
    Choice,
    Collection,
    Expression,
    Function,
    Jump,
    Literal,
    Name,
    Operation,
    Other,
    Return,
    dotted,
    method_of,
    parts_of,
    render,
)

_INLINE_DEPTH = 3
_FOLLOW_DEPTH = 4
_PROTOCOL = frozenset(("scale", "unscale_", "step", "update"))
_HARMLESS = frozenset(
    ("isinstance", "print", "len", "type", "id", "hasattr", "getattr", "callable", "bool", "str", "repr")
)
_CUTS = frozenset(("clamp_", "clip_", "clamp_min_", "clamp_max_", "masked_fill_", "sign_"))
_READS = frozenset(("norm", "abs", "max", "mean", "std", "pow", "square"))

_PRECISION = re.compile(
    r"(?<![a-z])amp(?![a-z])|useamp|scal|fp16|float16|half|mixed|precision|bf16|autocast|cuda|gpu|device|apex"
)

Kind = Choices[
    "scaled_backward",
    "backward",
    "other_backward",
    "unscale",
    "clip",
    "cut",
    "read",
    "scaler_step",
    "step",
    "update",
    "escape",
]
"""'other_backward' belongs to a framework or may be scaled by hand; 'cut' changes `.grad` by its size;
'read' looks at the size of `.grad`; 'escape' hands a scaler to code that is not seen."""


class Made(NamedTuple):
    """A scaler that the file makes."""

    qualified: str
    arguments: Mapping[str, Expression]
    """By parameter."""
    enabled: bool | None
    """None: decided at run time."""
    function: int
    block: int
    site: int


class Place(NamedTuple):
    """A call in a function."""

    function: int
    block: int
    site: int


class Op(NamedTuple):
    """One thing done."""

    kind: Kind
    scaler: str
    """As the viewed function names it; '' where there is none."""
    optimizer: str
    call: Call
    places: tuple[Place, ...]
    """The call in the viewed function, and within the functions that it calls, innermost last."""
    loss: Expression | None = None

    @property
    def site(self) -> int:
        return self.places[-1].site


@dataclass
class View:
    """What a function does, with what the functions of its file do that it calls."""

    amp: Amp
    function: Function
    ops: list[Op] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[Op]:
        """Ops of these kinds, in order."""
        return [op for op in self.ops if op.kind in kinds]

    def _position(self, op: Op) -> int:
        return next(index for index, other in enumerate(self.ops) if other.places == op.places)

    def before(self, op: Op, *kinds: Kind) -> list[Op]:
        """Ops that one run can do earlier than this one, the latest first."""
        position = self._position(op)
        return [
            other
            for other in reversed(self.ops[:position])
            if other.kind in kinds and not self.apart(other, op)
        ]

    def after(self, op: Op, *kinds: Kind) -> list[Op]:
        """Ops that one run can do later than this one, the next first."""
        position = self._position(op)
        return [
            other for other in self.ops[position + 1 :] if other.kind in kinds and not self.apart(op, other)
        ]

    def apart(self, first: Op, second: Op) -> bool:
        """Whether one run of a loop's round never does both; `first` comes first in the text."""
        for one, other in zip(first.places, second.places, strict=False):
            if one.site == other.site:
                continue
            function = self.amp.tables.functions[one.function]
            if self.amp.apart(function, one.block, other.block):
                return True
            if self._left(function, one.block, other.block):
                return True
            break
        return exclusive(self.conditions(first), self.conditions(second))

    def _left(self, function: Function, first: int, second: int) -> bool:
        """The run leaves the function or the loop's round between the two."""
        around = set(function.enclosing(second))
        exits = {
            event.block
            for event in function.events
            if (isinstance(event, Return) and not event.is_yield)
            or (isinstance(event, Jump) and event.kind != "break")
        }
        return any(block in exits and block not in around for block in function.enclosing(first))

    def conditions(self, op: Op) -> tuple[Condition, ...]:
        """Tests that hold where it is done."""
        functions = self.amp.tables.functions
        return tuple(
            condition
            for place in op.places
            for condition in self.amp.conditions(functions[place.function], place.block)
        )

    def around(self, op: Op) -> list[tuple[tuple[int, ...], int, int]]:
        """(calls followed, function, block) of every block around it, innermost first."""
        found: list[tuple[tuple[int, ...], int, int]] = []
        for level in range(len(op.places) - 1, -1, -1):
            place = op.places[level]
            frame = tuple(outer.site for outer in op.places[:level])
            function = self.amp.tables.functions[place.function]
            found.extend((frame, place.function, block) for block in function.enclosing(place.block))
        return found

    def loops(self, op: Op) -> list[tuple[tuple[int, ...], int, int]]:
        """The loops around it, innermost first."""
        return [
            (frame, function, block)
            for frame, function, block in self.around(op)
            if self.amp.tables.functions[function].blocks[block].kind == "loop"
        ]

    def bound_by(self, loop: tuple[tuple[int, ...], int, int], name: str) -> bool:
        """Whether a loop iterates over what a name stands for: `for opt in optimizers`."""
        function = self.amp.tables.functions[loop[1]]
        root = name.partition(".")[0].partition("[")[0]
        for event in function.events:
            if not isinstance(event, Assignment) or event.block != loop[2]:
                continue
            if isinstance(event.value, Other) and event.value.kind == "iterate":
                bound = {target.partition(".")[0] for target in event.targets}
                if root in bound or any(f"[{target}]" in name for target in bound):
                    return True
        return False

    def encloses(self, first: Op, second: Op) -> bool:
        """Whether the first is always done in a run of the second's block: `second` is at least as deep."""
        functions = self.amp.tables.functions
        chain = self.around(first)
        transparent = ("with", "try", "finally")
        position = 0
        while position < len(chain) - 1:
            _, function, block = chain[position]
            kind = functions[function].blocks[block].kind
            # A followed function's body runs where it is called.
            if kind not in transparent and not (block == 0 and len(chain) - 1 > position):
                break
            position += 1
        return chain[position] in self.around(second)

    def extra(self, op: Op, other: Op) -> list[Condition]:
        """Tests that hold where the first is done and need not hold where the other is."""
        shared = self.conditions(other)
        return [condition for condition in self.conditions(op) if condition not in shared]

    def decided_by_precision(self, op: Op, other: Op) -> bool:
        """The first is done under a test on mixed precision or the device that the other is not under."""
        return any(_PRECISION.search(condition.text.lower()) for condition in self.extra(op, other))

    def between(self, first: Op, second: Op, *kinds: Kind) -> list[Op]:
        """Ops of these kinds that one run can do between the two."""
        start, end = self._position(first), self._position(second)
        return [
            op
            for op in self.ops[start + 1 : end]
            if op.kind in kinds and not self.apart(first, op) and not self.apart(op, second)
        ]


class Scaling:
    """Answers about loss scaling in one file."""

    def __init__(self, amp: Amp) -> None:
        self.amp = amp
        self.resolver = amp.resolver
        self.tables = amp.tables

    # -- scalers

    def made_by(self, function: Function, call: Call) -> Made | None:
        """The scaler that a call makes; None when it makes something else."""
        for qualified in self.resolver.called(function, call):
            parameters = names().scaler_classes.get(qualified)
            if parameters is None:
                continue
            given: dict[str, Expression] = {}
            unpacked = False
            for position, argument in enumerate(call.arguments):
                unpacked = unpacked or bool(argument.star)
                if argument.keyword:
                    given[argument.keyword] = argument.value
                elif not argument.star and position < len(parameters):
                    given[parameters[position]] = argument.value
            enabled: bool | None = True
            if "enabled" in given:
                possible = self.resolver.evaluate(function, given["enabled"])
                truths = {bool(value) for value in possible.values}
                enabled = truths.pop() if possible.complete and len(truths) == 1 else None
            elif unpacked:
                enabled = None
            return Made(qualified, given, enabled, function.index, 0, call.site)
        return None

    @cached_property
    def made(self) -> list[Made]:
        """Every scaler that the file makes, in order."""
        found = []
        for function in self.tables.functions:
            for event in function.events:
                if isinstance(event, CallEvent):
                    made = self.made_by(function, event.call)
                    if made is not None:
                        found.append(made._replace(block=event.block))
        return found

    def origins(self, function: Function, name: str, depth: int = _FOLLOW_DEPTH) -> tuple[list[Made], bool]:
        """Scalers that a name can stand for, and whether anything else that is called could be it."""
        found: list[Made] = []
        others = False
        if depth > 0 and any(parameter.name == name for parameter in function.parameters):
            for caller, argument in self.passed(function, name):
                inner, other = self._origins_of_value(caller, argument, name, depth)
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

    def passed(self, function: Function, parameter: str) -> Iterator[tuple[Function, Expression]]:
        """(caller, argument) of what functions of the file pass for a parameter."""
        positions = [item.name for item in function.parameters if not item.star]
        for caller, call in self._calls.get(function.index, ()):
            listed = positions[1:] if dotted(call.function).startswith(("self.", "cls.")) else positions
            for position, argument in enumerate(call.arguments):
                target = argument.keyword or (listed[position] if position < len(listed) else "")
                if target == parameter and not argument.star:
                    yield caller, argument.value

    @cached_property
    def _calls(self) -> dict[int, list[tuple[Function, Call]]]:
        """Function -> where the file calls it."""
        found: dict[int, list[tuple[Function, Call]]] = {}
        for function in self.tables.functions:
            for event in function.events:
                if isinstance(event, CallEvent):
                    for helper in self.resolver.local_functions(function, event.call.function):
                        found.setdefault(helper.index, []).append((function, event.call))
        return found

    @cached_property
    def _protocol(self) -> dict[str, set[str]]:
        """Last part of a receiver's name -> methods of a scaler that are called on it; '' for itself."""
        found: dict[str, set[str]] = {}
        for function in self.tables.functions:
            for event in function.events:
                if not isinstance(event, CallEvent):
                    continue
                receiver, method = method_of(event.call)
                if receiver is None:
                    found.setdefault(method, set()).add("")
                elif method in _PROTOCOL:
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
                    maker = render(leaf.function).rpartition(".")[2]
                    if maker.endswith("GradScaler") or (maker.islower() and maker.endswith("scaler")):
                        return True
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
                _Reader(self, view).run()
                if view.ops:
                    found.append(view)
        return found

    @cached_property
    def all_known(self) -> bool:
        """Every name in the file that speaks of scaling is a GradScaler that the file makes and keeps to
        itself, or a parameter for one."""
        words = names().scaler_words
        bound = {"GradScaler", "scaler", "grad_scaler"}
        for identifier in self.tables.identifiers:
            squeezed = identifier.lower().replace("_", "")
            if identifier not in bound and any(word in squeezed for word in words):
                return False
        if not self.made:
            return False
        for function in self.tables.functions:
            if function.name in ("scaler", "grad_scaler"):
                return False
            if any(parameter.name in bound for parameter in function.parameters):
                return False
        return not any(view.of("escape") for view in self.views)

    def is_near(self, site: int) -> bool:
        """Whether code that runs a call also uses a scaler, in any branch."""
        return any(
            view.of("scaled_backward", "unscale", "scaler_step", "escape")
            for view in self.views
            if any(place.site == site for op in view.ops for place in op.places)
        )

    def is_off(self, view: View, op: Op) -> bool:
        """The scaler of an op is known to be disabled."""
        return self.enabled(view.function, op.scaler) is False


def _leaves(expression: Expression) -> Iterator[Expression]:
    """What a value can be: both branches of a choice, the operands of `or` and `and`."""
    match expression:
        case Choice(_, first, second):
            yield from _leaves(first)
            yield from _leaves(second)
        case Operation("or" | "and", operands):
            for operand in operands:
                yield from _leaves(operand)
        case Collection("list" | "tuple" | "dict", items, _):
            for item in items:
                yield from _leaves(item)
        case Other("comprehension", parts) if parts:
            yield from _leaves(parts[0])
        case _:
            yield expression


def _last(expression: Expression) -> str:
    text = render(expression).partition("[")[0]
    return text.rpartition(".")[2]


class _Frame(NamedTuple):
    function: Function
    places: tuple[Place, ...]
    renamed: Mapping[str, str]
    scalers: frozenset[str]
    """Parameters that get a scaler."""


class _Written(NamedTuple):
    block: int
    scaler: str


class _Reader:
    """Fills a view."""

    def __init__(self, scaling: Scaling, view: View) -> None:
        self.scaling = scaling
        self.amp = scaling.amp
        self.view = view
        self._written: dict[tuple[tuple[Place, ...], str], list[_Written]] = {}
        self._returned: dict[tuple[tuple[Place, ...], int], str] = {}
        self._entered: list[int] = []

    def run(self) -> None:
        self._read(_Frame(self.view.function, (), {}, frozenset()))

    def _read(self, frame: _Frame) -> str:
        """Read a function; what scaler its result was scaled with."""
        self._entered.append(frame.function.index)
        returned = ""
        for event in frame.function.events:
            if isinstance(event, CallEvent):
                self._call(frame, event)
            elif isinstance(event, Assignment):
                self._assign(frame, event)
            elif isinstance(event, Return):
                returned = returned or self._scaled(frame, event.value, event.block)
                if not frame.places and self._scalers_in(frame, (Argument(event.value),)):
                    call = Call(Name("return"), (), event.site)
                    self._add(frame, "escape", call, event.block, scaler=render(event.value))
        self._entered.pop()
        return returned

    def _outer(self, frame: _Frame, expression: Expression) -> str:
        """An expression of a followed function as the viewed function would write it."""
        text = render(expression)
        root, dot, rest = text.partition(".")
        return frame.renamed.get(root, root) + dot + rest

    def _is_scaler(self, frame: _Frame, expression: Expression) -> bool:
        return dotted(expression) in frame.scalers or self.scaling.is_scaler(frame.function, expression)

    def _add(
        self,
        frame: _Frame,
        kind: Kind,
        call: Call,
        block: int,
        *,
        scaler: str = "",
        optimizer: str = "",
        loss: Expression | None = None,
    ) -> None:
        places = (*frame.places, Place(frame.function.index, block, call.site))
        self.view.ops.append(Op(kind, scaler, optimizer, call, places, loss))

    def _call(self, frame: _Frame, event: CallEvent) -> None:
        call, block = event
        receiver, method = method_of(call)
        first = call.arguments[0].value if call.arguments else None
        if receiver is not None and method in _PROTOCOL and self._is_scaler(frame, receiver):
            scaler = self._outer(frame, receiver)
            optimizer = self._outer(frame, first) if first is not None else ""
            if method == "unscale_":
                self._add(frame, "unscale", call, block, scaler=scaler, optimizer=optimizer)
            elif method == "step" and first is not None:
                self._add(frame, "scaler_step", call, block, scaler=scaler, optimizer=optimizer)
            elif method == "update":
                self._add(frame, "update", call, block, scaler=scaler)
            return
        qualified = self.amp.resolver.called(frame.function, call)
        if method in ("backward", "grad") and (method == "backward" or "torch.autograd.grad" in qualified):
            self._backward(frame, event, receiver, qualified)
        elif any(name in names().clips for name in qualified):
            if not any("master_params" in render(argument.value) for argument in call.arguments):
                self._add(frame, "clip", call, block)
        elif receiver is not None and render(receiver).endswith((".grad", ".grad.data")):
            if method in _CUTS:
                self._add(frame, "cut", call, block)
            elif method in _READS:
                self._add(frame, "read", call, block)
        elif method == "norm" and first is not None and ".grad" in render(first):
            self._add(frame, "read", call, block)
        elif method == "step" and receiver is not None and self._is_plain_step(frame, call, receiver):
            self._add(frame, "step", call, block, optimizer=self._outer(frame, receiver))
        else:
            self._follow(frame, event)

    def _is_plain_step(self, frame: _Frame, call: Call, receiver: Expression) -> bool:
        if any("closure" not in render(argument.value).lower() for argument in call.arguments):
            # Schedulers step with an epoch or a metric.
            return False
        return self.amp.is_optimizer(frame.function, receiver)

    def _backward(
        self, frame: _Frame, event: CallEvent, receiver: Expression | None, qualified: tuple[str, ...]
    ) -> None:
        call, block = event
        first = call.arguments[0].value if call.arguments else None
        is_function = any(name.startswith("torch.autograd.") for name in qualified)
        loss = first if is_function else receiver
        if loss is None:
            return
        scaler = self._scaled(frame, loss, block)
        if scaler:
            self._add(frame, "scaled_backward", call, block, scaler=scaler, loss=loss)
        elif method_of(call)[1] == "grad":
            return
        elif is_function or self.amp.is_tensor_backward(frame.function, call):
            by_hand = "scal" in render(loss).lower() or self._by_hand(frame, loss, block)
            self._add(frame, "other_backward" if by_hand else "backward", call, block, loss=loss)
        elif not self.amp.resolver.local_functions(frame.function, call.function):
            self._add(frame, "other_backward", call, block, loss=loss)
        else:
            self._follow(frame, event)

    def _by_hand(self, frame: _Frame, loss: Expression, block: int) -> bool:
        """The loss was multiplied by something called a scale, or comes from code that may scale it."""
        name = dotted(loss)
        if not name:
            return False
        for scope, item in self.amp.resolver.definitions(frame.function, name)[0]:
            if scope is frame.function and self.amp.apart(scope, item.block, block):
                continue
            if "scal" in render(item.value).lower():
                return True
        return False

    def _scalers_in(self, frame: _Frame, arguments: tuple[Argument, ...]) -> list[Expression]:
        found: list[Expression] = []
        waiting = [argument.value for argument in arguments]
        while waiting:
            expression = waiting.pop()
            if isinstance(expression, Name):
                if "scaler" in expression.dotted.lower() or expression.dotted in frame.scalers:
                    found.append(expression)
            elif isinstance(expression, Collection):
                waiting.extend(expression.items)
        return found

    def _follow(self, frame: _Frame, event: CallEvent) -> None:
        call, block = event
        helpers = [
            helper
            for helper in self.amp.resolver.local_functions(frame.function, call.function)
            if helper.kind == "function"
        ]
        place = Place(frame.function.index, block, call.site)
        if (
            len(helpers) == 1
            and len(frame.places) < _INLINE_DEPTH
            and helpers[0].index not in self._entered
            and not any(argument.star for argument in call.arguments)
        ):
            inner = self._enter(frame, helpers[0], call, place, block)
            returned = self._read(inner)
            if returned:
                self._returned[frame.places, call.site] = returned
            return
        name = dotted(call.function)
        if name.rpartition(".")[2] in _HARMLESS or name.endswith((".save", ".load", ".info", ".append")):
            return
        for scaler in self._scalers_in(frame, call.arguments):
            self._add(frame, "escape", call, block, scaler=self._outer(frame, scaler))

    def _enter(self, frame: _Frame, helper: Function, call: Call, place: Place, block: int) -> _Frame:
        parameters = [parameter.name for parameter in helper.parameters if not parameter.star]
        if dotted(call.function).startswith(("self.", "cls.")) and parameters:
            parameters = parameters[1:]
        renamed: dict[str, str] = {}
        scalers = set()
        places = (*frame.places, place)
        for position, argument in enumerate(call.arguments):
            target = argument.keyword or (parameters[position] if position < len(parameters) else "")
            if not target:
                continue
            renamed[target] = self._outer(frame, argument.value)
            if isinstance(argument.value, Name) and self._is_scaler(frame, argument.value):
                scalers.add(target)
            scaler = self._scaled(frame, argument.value, block)
            if scaler:
                self._written.setdefault((places, target), []).append(_Written(0, scaler))
        return _Frame(helper, places, renamed, frozenset(scalers))

    def _assign(self, frame: _Frame, event: Assignment) -> None:
        scaler = self._scaled(frame, event.value, event.block)
        for target in event.targets:
            if event.operator and not scaler:
                continue
            self._written.setdefault((frame.places, target), []).append(_Written(event.block, scaler))
            if target.endswith((".grad", ".grad.data")) and not event.operator:
                text = render(event.value)
                if any(cut in text for cut in ("clamp", "clip")):
                    self._add(frame, "cut", Call(Name(target), (), event.site), event.block)

    def _scaled(self, frame: _Frame, expression: Expression, block: int) -> str:
        """The scaler that a value was scaled with; ''."""
        match expression:
            case Call():
                receiver, method = method_of(expression)
                if method == "scale" and receiver is not None and self._is_scaler(frame, receiver):
                    return self._outer(frame, receiver)
                known = self._returned.get((frame.places, expression.site))
                if known:
                    return known
                parts: tuple[Expression, ...] = tuple(argument.value for argument in expression.arguments)
                # What another function makes of a scaled loss is not known to be scaled.
                if receiver is not None and not isinstance(receiver, Name):
                    return self._scaled(frame, receiver, block)
                if method in ("sum", "stack", "mean") and parts:
                    return self._first(frame, parts, block)
                return ""
            case Name(name):
                return self._of_name(frame, name, block)
            case Literal():
                return ""
            case _:
                return self._first(frame, parts_of(expression), block)

    def _first(self, frame: _Frame, parts: tuple[Expression, ...], block: int) -> str:
        for part in parts:
            found = self._scaled(frame, part, block)
            if found:
                return found
        return ""

    def _of_name(self, frame: _Frame, name: str, block: int) -> str:
        around = frame.function.enclosing(block)
        for written in reversed(self._written.get((frame.places, name), [])):
            if self.amp.apart(frame.function, written.block, block):
                continue
            if written.scaler:
                return written.scaler
            if written.block in around:
                return ""
        return ""
