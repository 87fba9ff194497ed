"""Which autocast regions a value comes from, followed through one function in the order of its events.

The order of the text stands for the order of running: branches are told apart, a loop's body is followed
once. What is unclear counts as not coming from a region, so that rules stay silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tclint.source.facts.amp import Amp
from tclint.source.facts.autocasts import Region
from tclint.source.names.queries import (
    bound,
    conditions_of,
    exclusive,
    left_between,
    makers,
    mutually_exclusive,
)
from tclint.source.syntax.tables import (
    Assignment,
    Attribute,
    Call,
    CallEvent,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Return,
    dotted,
    method_of,
    parts_of,
    render,
)

_DETACHING = frozenset(
    ("detach", "detach_", "item", "tolist", "numpy", "cpu_item", "size", "dim", "numel", "argmax", "data")
) | frozenset(("shape", "device", "dtype", "ndim"))
_LOSS_LIKE = re.compile(r"loss|crit|cost|nll|entropy|objective|bce|mse|kld|penalty|reduce|mean|sum|stack|cat")
_WEIGHT_LIKE = re.compile(r"weight|mask|lambda|lambd|alpha|beta|gamma|coef|ratio|lam\b|_w\b|\bw_")
_SCALES = re.compile(r"(?:^|[._])(?:un)?scale(?:_|$)")
_LARGEST_WEIGHT = 8.0
"""Constant factors up to this are weights of loss terms, larger ones may be loss scales (8 to 32K in
NVIDIA's Train With Mixed Precision, 'Choosing A Scaling Factor')."""


class Origin(NamedTuple):
    """Where a value was computed."""

    regions: frozenset[Region] = frozenset()
    scaled: bool = False
    """Multiplied by something that may be a loss scale."""

    def __or__(self, other: Origin) -> Origin:
        return Origin(self.regions | other.regions, self.scaled or other.scaled)


NOWHERE = Origin()


class Backward(NamedTuple):
    """A call of Tensor.backward and what its loss comes from."""

    call: Call
    block: int
    loss: Expression
    origin: Origin


class _Written(NamedTuple):
    block: int
    origin: Origin
    adds: bool
    """Keeps what the name held before."""


@dataclass
class Flow:
    """Made once per function; read `backwards`, `scaled` and `returned`."""

    amp: Amp
    function: Function
    others: Flows
    given: Mapping[str, Origin] = field(default_factory=dict)
    """What the callers of this file pass for parameters."""
    backwards: list[Backward] = field(default_factory=list)
    scaled: list[Backward] = field(default_factory=list)
    """Calls `x.scale(loss)`, with what the loss comes from."""
    returned: Origin = NOWHERE
    _written: dict[str, list[_Written]] = field(default_factory=dict)

    def run(self) -> None:
        for name, origin in self.given.items():
            self._written[name] = [_Written(0, origin, False)]
        for event in self.function.events:
            if isinstance(event, Assignment):
                self._assign(event)
            elif isinstance(event, CallEvent):
                self._call(event)
            elif isinstance(event, Return):
                self.returned = self.returned | self.origin(event.value, event.block)

    def origin(self, expression: Expression, block: int) -> Origin:
        """The regions that a value read at this point of the run comes from."""
        match expression:
            case Name(name):
                return self._of_name(name, block)
            case Call():
                return self._of_call(expression, block)
            case Attribute(value, name):
                return NOWHERE if name in _DETACHING else self.origin(value, block)
            case Operation(symbol, operands):
                found = self._union(operands, block)
                if symbol in ("*", "/") and found.regions and self._may_scale(symbol, operands, block):
                    return found._replace(scaled=True)
                return NOWHERE if symbol in ("not", "==", "is", "is not", "in", "<", ">") else found
            case _:
                return self._union(parts_of(expression), block)

    def _union(self, expressions: tuple[Expression, ...], block: int) -> Origin:
        found = NOWHERE
        for expression in expressions:
            found = found | self.origin(expression, block)
        return found

    def _of_name(self, name: str, block: int) -> Origin:
        if name.rpartition(".")[2] in _DETACHING:
            return NOWHERE
        while name:
            if name in self._written:
                return self._reaching(self._written[name], block)
            name = name.rpartition(".")[0]
        return NOWHERE

    def _reaching(self, written: list[_Written], block: int) -> Origin:
        found = NOWHERE
        around = set(self.function.enclosing(block))
        for item in reversed(written):
            if mutually_exclusive(self.function, item.block, block) or left_between(
                self.function, item.block, block
            ):
                continue
            for region in item.origin.regions:
                # `with autocast(enabled=amp)` and then `if not amp: loss.backward()`
                if exclusive(conditions_of(self.function, block), region.autocast.conditions):
                    return found
            found = found | item.origin
            if not item.adds and self._unconditional(item.block) in around:
                break
        return found

    def _unconditional(self, block: int) -> int:
        """The outermost block that always runs this one when it runs itself."""
        while self.function.blocks[block].kind in ("with", "try", "finally"):
            block = self.function.blocks[block].parent
        return block

    def _of_call(self, call: Call, block: int) -> Origin:
        receiver, method = method_of(call)
        if method in _DETACHING:
            return NOWHERE
        operands: tuple[Expression, ...] = tuple(argument.value for argument in call.arguments)
        if receiver is not None:
            operands = (receiver, *operands)
        if not self.amp.gradients_on(self.function, block):
            return NOWHERE
        region = self.amp.autocasts.effective(self.function, block)
        if region is not None:
            found = Origin(frozenset((region,))) | self._union(operands, block)
        else:
            # Outside, or where autocast is switched off again: only what comes in can come from a region.
            found = self._outside(call, receiver, method, operands, block)
        if not found.regions:
            return NOWHERE
        if _SCALES.search(render(call.function).lower()) or (
            method in ("mul", "mul_") and self._may_scale("*", operands, block)
        ):
            return found._replace(scaled=True)
        return found

    def _outside(
        self,
        call: Call,
        receiver: Expression | None,
        method: str,
        operands: tuple[Expression, ...],
        block: int,
    ) -> Origin:
        found = NOWHERE
        helpers = self.amp.resolver.local_functions(self.function, call.function)
        if helpers:
            for helper in helpers:
                if helper.kind == "function":
                    found = found | self.others.of(helper).returned
            return found
        through = self._through_module(call)
        if not through.regions and self.others.foreign is not None:
            through = self.others.foreign(self.function, call)
        if through.regions:
            return through
        if receiver is not None:
            held = self.origin(receiver, block)
            if held.regions:
                return held | self._union(operands, block)
        # A loss function carries its arguments' origin on; another network outside the region does not.
        qualified = self.amp.resolver.called(self.function, call)
        known = any(name.startswith("torch.") for name in qualified)
        if known or _LOSS_LIKE.search(f"{render(receiver) if receiver else ''}.{method}".lower()):
            found = self._union(operands, block)
        return found

    def _through_module(self, call: Call) -> Origin:
        """What the forward of a class of this file returns, where the call is one of its objects'."""
        resolver = self.amp.resolver
        name = dotted(call.function)
        found = NOWHERE
        for scope, item in resolver.definitions(self.function, name)[0] if name else ():
            for made in makers(item.value):
                for maker in resolver.local_functions(scope, made.function):
                    methods = resolver.tables.children.get(maker.index, {}) if maker.kind == "class" else {}
                    for index in methods.get("forward", ()):
                        found = found | self.others.of(resolver.tables.functions[index]).returned
        return found

    def _may_scale(self, symbol: str, operands: tuple[Expression, ...], block: int) -> bool:
        inside = bool(self.amp.autocasts.active(self.function, block))
        for operand in operands:
            text = render(operand).lower()
            if "scal" in text:
                return True
            if symbol == "/" or self.origin(operand, block).regions:
                continue
            possible = self.amp.resolver.evaluate(self.function, operand)
            numbers = [value for value in possible.values if isinstance(value, int | float)]
            if possible.complete and len(numbers) == len(possible.values):
                if any(abs(number) > _LARGEST_WEIGHT for number in numbers):
                    return True
            elif not inside and not _WEIGHT_LIKE.search(text):
                return True
        return False

    def _assign(self, event: Assignment) -> None:
        origin = self.origin(event.value, event.block)
        region = self.amp.autocasts.effective(self.function, event.block)
        computed = isinstance(event.value, Operation) and not _constant(event.value)
        recorded = self.amp.gradients_on(self.function, event.block)
        if region is not None and computed and recorded and not origin.regions:
            # Operators on values from outside run under autocast as well: `loss = x @ w`.
            origin = Origin(frozenset((region,)))
        for target in event.targets:
            if not target:
                continue
            mine = origin
            if event.operator in ("*", "/"):
                held = self._of_name(target, event.block)
                operands = (Name(target), event.value)
                if held.regions and self._may_scale(event.operator, operands, event.block):
                    mine = held._replace(scaled=True)
            written = self._written.setdefault(target, [])
            written.append(_Written(event.block, mine, bool(event.operator)))

    def _call(self, event: CallEvent) -> None:
        call = event.call
        receiver, method = method_of(call)
        for helper in self.amp.resolver.local_functions(self.function, call.function):
            if helper.kind == "function" and call.arguments:
                self._pass(helper, call, event.block)
        if method == "backward":
            loss = self._loss_of(call, receiver)
            if loss is not None:
                found = Backward(call, event.block, loss, self.origin(loss, event.block))
                self.backwards.append(found)
        elif method == "scale" and len(call.arguments) == 1:
            loss = call.arguments[0].value
            self.scaled.append(Backward(call, event.block, loss, self.origin(loss, event.block)))
        elif method in ("append", "extend", "add", "update", "insert", "setdefault") and receiver is not None:
            name = dotted(receiver)
            origin = self._union(tuple(argument.value for argument in call.arguments), event.block)
            if name and origin.regions:
                self._written.setdefault(name, []).append(_Written(event.block, origin, True))
        elif method in ("mul_", "div_") and receiver is not None and dotted(receiver):
            held = self.origin(receiver, event.block)
            operands = (receiver, *(argument.value for argument in call.arguments))
            symbol = "*" if method == "mul_" else "/"
            if held.regions and self._may_scale(symbol, operands, event.block):
                written = self._written.setdefault(dotted(receiver), [])
                written.append(_Written(event.block, held._replace(scaled=True), True))

    def _pass(self, helper: Function, call: Call, block: int) -> None:
        """Note what a call hands to a function of the same file."""
        for name, value in bound(call, self.amp.resolver.parameters(helper)).items():
            origin = self.origin(value, block)
            if origin.regions:
                self.others.note(helper, name, origin)

    def _loss_of(self, call: Call, receiver: Expression | None) -> Expression | None:
        if "torch.autograd.backward" in self.amp.resolver.called(self.function, call):
            return call.arguments[0].value if call.arguments else None
        if receiver is not None and self.amp.is_tensor_backward(self.function, call):
            return receiver
        return None


class Flows:
    """The flow of every function of a file, made when first asked for.

    Args:
        foreign: what a call of a model that another file defines comes from.
    """

    def __init__(self, amp: Amp, foreign: Callable[[Function, Call], Origin] | None = None) -> None:
        self._amp = amp
        self.foreign = foreign
        self._made: dict[int, Flow] = {}
        self._passed: dict[int, dict[str, Origin]] = {}

    def of(self, function: Function) -> Flow:
        made = self._made.get(function.index)
        if made is None:
            # Stored before it runs: a recursive function sees itself as returning nothing.
            made = self._made[function.index] = Flow(self._amp, function, self)
            made.run()
        return made

    def __iter__(self) -> Iterator[Flow]:
        """The flows of all functions, with what their callers in the file pass to them."""
        functions = self._amp.tables.functions
        made = [self.of(function) for function in functions]
        # Once more where a caller passes something on; what is passed through two calls is not followed.
        passed = {index: dict(given) for index, given in self._passed.items()}
        for function, flow in zip(functions, made, strict=True):
            if (flow.backwards or flow.scaled) and function.index in passed:
                again = Flow(self._amp, function, self, passed[function.index])
                again.run()
                yield again
            else:
                yield flow

    def note(self, function: Function, parameter: str, origin: Origin) -> None:
        """A caller passes a value with this origin."""
        given = self._passed.setdefault(function.index, {})
        given[parameter] = given.get(parameter, NOWHERE) | origin


def _constant(expression: Expression) -> bool:
    return isinstance(expression, Literal) or (
        bool(parts_of(expression)) and all(_constant(part) for part in parts_of(expression))
    )
