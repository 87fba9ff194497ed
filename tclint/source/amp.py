"""Autocast regions, gradient modes and loss scalers, read from the tables of one file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tclint.source.frameworks import names
from tclint.source.resolve import Possible, Resolver, Symbol
from tclint.source.tables import (
    Assignment,
    Attribute,
    Block,
    Call,
    CallEvent,
    Choice,
    Closure,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Return,
    Tables,
    dotted,
    method_of,
    parts_of,
    render,
)

_DEPTH = 6

_PRODUCTS = ("*", "/", "//", "**")
_ARITHMETIC = (*_PRODUCTS, "+", "-")

_RESCALING_WORDS = ("clip", "grad", "norm", "unscale", "mul", "div")
"""In the names of functions that may use a loss scale they are given as a factor."""

_DTYPES = {
    "float16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float": "float32",
    "float64": "float64",
    "double": "float64",
}


class Condition(NamedTuple):
    """A test that holds (or does not) wherever a block runs, in one spelling."""

    text: str
    holds: bool


class Autocast(NamedTuple):
    """One use of autocast, as far as it is known before running."""

    qualified: str
    """'torch.cuda.amp.autocast', ..."""
    devices: tuple[str, ...] | None
    """'cuda', 'cpu', ... that it can be for; None when not all are known."""
    dtype: str | None
    """'float16', 'bfloat16', ... on a GPU where it can run on one; None when unknown."""
    dtype_given: bool
    """False: `dtype` is the default of the device."""
    enabled: bool | None
    """None: decided at run time."""
    conditions: tuple[Condition, ...]
    """What holds where it is enabled."""
    site: int


class Region(NamedTuple):
    """Code that runs under autocast: a with block and what it encloses, or a decorated function."""

    function: int
    block: int
    autocast: Autocast
    site: int

    @property
    def on_cuda(self) -> bool:
        return self.autocast.devices is None or "cuda" in self.autocast.devices


@dataclass
class Amp:
    """Answers about mixed precision in one file."""

    resolver: Resolver
    _regions: dict[int, tuple[Region, ...]] = field(default_factory=dict, repr=False)

    @property
    def tables(self) -> Tables:
        return self.resolver.tables

    # -- autocast

    def regions(self, function: Function) -> tuple[Region, ...]:
        """Autocast regions of a function's own code in order, decorators first; disabled ones as well."""
        if function.index not in self._regions:
            # A context manager that enters itself has no regions while they are looked for.
            self._regions[function.index] = ()
            self._regions[function.index] = tuple(self._find_regions(function))
        return self._regions[function.index]

    def _find_regions(self, function: Function) -> Iterator[Region]:
        for decorator in function.decorators if function.kind == "function" else ():
            outer = self.tables.functions[function.parent]
            found = self._autocasts(outer, decorator)
            if len(found) == 1:
                yield Region(function.index, 0, found[0], found[0].site)
        for index, block in enumerate(function.blocks):
            for item in block.items:
                found = self._autocasts(function, item.value)
                if found:
                    yield Region(function.index, index, _merged(found), item.site)

    def active(self, function: Function, block: int) -> tuple[Region, ...]:
        """Autocast regions around a block, innermost first."""
        regions = self.regions(function)
        return tuple(
            region
            for enclosing in function.enclosing(block)
            for region in reversed(regions)
            if region.block == enclosing
        )

    def effective(self, function: Function, block: int) -> Region | None:
        """The autocast region that is in force at a block; None where the innermost one is disabled, or
        where the block only runs when it is disabled."""
        conditions = self.conditions(function, block)
        for region in self.active(function, block):
            if region.autocast.enabled is False or exclusive(conditions, region.autocast.conditions):
                return None
            return region
        return None

    def _autocasts(self, function: Function, expression: Expression, depth: int = _DEPTH) -> list[Autocast]:
        """Every autocast that a context expression can be; empty when none."""
        if depth <= 0:
            return []
        match expression:
            case Call():
                return self._autocasts_of_call(function, expression, depth)
            case Choice(condition, first, second):
                tested = self.resolver.evaluate(function, condition)
                if tested.certain:
                    return self._autocasts(function, first if tested.values[0] else second, depth - 1)
                found = []
                for part, holds in ((first, True), (second, False)):
                    guards = tuple(_simple_conditions(condition, holds))
                    for autocast in self._autocasts(function, part, depth - 1):
                        enabled = autocast.enabled and None
                        found.append(
                            autocast._replace(enabled=enabled, conditions=autocast.conditions + guards)
                        )
                return found
            case Name(name):
                found = []
                definitions, _ = self.resolver.definitions(function, name)
                for scope, item in definitions:
                    if item.operator or item.unpacked:
                        continue
                    for autocast in self._autocasts(scope, item.value, depth - 1):
                        known = autocast.enabled if len(definitions) == 1 else autocast.enabled and None
                        found.append(autocast._replace(enabled=known))
                return found
            case _:
                return []

    def _autocasts_of_call(self, function: Function, call: Call, depth: int) -> list[Autocast]:
        for qualified in self.resolver.called(function, call):
            if qualified in names().autocast:
                return [self.autocast(function, qualified, call)]
        name = dotted(call.function)
        found: list[Autocast] = []
        for helper in self.resolver.local_functions(function, call.function):
            if helper.kind == "function":
                found.extend(self._autocasts_of_helper(helper, depth))
        if found or not name:
            return found
        # `amp_autocast = torch.cuda.amp.autocast`, `partial(torch.autocast, ...)`, `lambda: autocast(...)`
        definitions, _ = self.resolver.definitions(function, name)
        for scope, item in definitions:
            for autocast in self._factory(scope, item.value, call, depth):
                known = autocast.enabled if len(definitions) == 1 else autocast.enabled and None
                found.append(autocast._replace(enabled=known, site=call.site))
        return found

    def _factory(self, scope: Function, value: Expression, call: Call, depth: int) -> list[Autocast]:
        if depth <= 0:
            return []
        match value:
            case Name(name):
                for qualified in self.resolver.qualified(scope, name):
                    if qualified in names().autocast:
                        return [self.autocast(scope, qualified, call)]
                return []
            case Call(_, arguments, _):
                if "functools.partial" in self.resolver.called(scope, value) and arguments:
                    target = dotted(arguments[0].value)
                    for qualified in self.resolver.qualified(scope, target) if target else ():
                        if qualified in names().autocast:
                            bound = Call(value.function, arguments[1:] + call.arguments, call.site)
                            return [self.autocast(scope, qualified, bound)]
                return []
            case Choice(_, first, second):
                found = self._factory(scope, first, call, depth - 1)
                found += self._factory(scope, second, call, depth - 1)
                return [autocast._replace(enabled=autocast.enabled and None) for autocast in found]
            case Closure(index):
                return self._autocasts_of_helper(self.tables.functions[index], depth)
            case _:
                return []

    def _autocasts_of_helper(self, helper: Function, depth: int) -> list[Autocast]:
        """Of a function of this file that returns an autocast, or yields inside one as a context manager."""
        found: list[Autocast] = []
        returns = 0
        for event in helper.events:
            if not isinstance(event, Return):
                continue
            returns += 1
            if event.is_yield:
                found.extend(region.autocast for region in self.active(helper, event.block)[:1])
            else:
                found.extend(self._autocasts(helper, event.value, depth - 1))
        if returns > 1:
            return [autocast._replace(enabled=autocast.enabled and None) for autocast in found]
        return found

    def autocast(self, function: Function, qualified: str, call: Call) -> Autocast:
        """What a call of an autocast class makes; `qualified` is one of names().autocast."""
        known = names().autocast[qualified]
        given: dict[str, Expression] = {}
        unpacked = False
        position = 0
        for argument in call.arguments:
            if argument.star:
                unpacked = True
            elif argument.keyword:
                given[argument.keyword] = argument.value
            elif position < len(known.parameters):
                given[known.parameters[position]] = argument.value
                position += 1
        devices = self._devices(function, known.device, given.get("device_type"))
        dtype, dtype_given = self._dtype(function, given.get("dtype"), devices)
        enabled, conditions = self._enabled(function, given.get("enabled"))
        if unpacked:
            dtype = dtype if "dtype" in given else None
            enabled = enabled if "enabled" in given else None
        return Autocast(qualified, devices, dtype, dtype_given, enabled, conditions, call.site)

    def _devices(
        self, function: Function, device: str, expression: Expression | None
    ) -> tuple[str, ...] | None:
        if device != "argument":
            return (device,)
        if expression is None:
            return None
        possible = self.resolver.evaluate(function, expression)
        if not possible.complete or not all(isinstance(value, str) for value in possible.values):
            return None
        return tuple(str(value).split(":", 1)[0] for value in possible.values)

    def _dtype(
        self, function: Function, expression: Expression | None, devices: tuple[str, ...] | None
    ) -> tuple[str | None, bool]:
        possible = Possible((None,), True)
        if expression is not None:
            possible = self.resolver.evaluate(function, expression)
        if possible.certain and possible.values[0] is None:
            defaults = names().autocast_default_dtype
            if devices is None or self.changes_default:
                return None, False
            # `"cuda" if available else "mps"`: what it is on a GPU does not hang on the others.
            if "cuda" in devices:
                return defaults["cuda"], False
            by_device = {defaults.get(device) for device in devices}
            return (by_device.pop() if len(by_device) == 1 else None), False
        dtypes = {_dtype_name(value) for value in possible.values}
        if possible.complete and len(dtypes) == 1:
            return dtypes.pop(), True
        return None, True

    def _enabled(
        self, function: Function, expression: Expression | None
    ) -> tuple[bool | None, tuple[Condition, ...]]:
        if expression is None:
            return True, ()
        possible = self.resolver.evaluate(function, expression)
        conditions = tuple(_simple_conditions(expression, True))
        if possible.complete:
            truths = {bool(value) for value in possible.values}
            if len(truths) == 1:
                return truths.pop(), ()
        return None, conditions

    @cached_property
    def changes_default(self) -> bool:
        """The file sets the default dtype of autocast for the whole program."""
        changing = names().changes_autocast_default
        return any(name.rpartition(".")[2] in self.tables.identifiers for name in changing)

    # -- gradients

    def gradients_on(self, function: Function, block: int) -> bool:
        """False inside `torch.no_grad()` and its like, as a with block or a decorator."""
        for enclosing in function.enclosing(block):
            for item in function.blocks[enclosing].items:
                mode = self._gradient_mode(function, item.value)
                if mode is not None:
                    return mode
        outer = self.tables.functions[function.parent] if function.parent >= 0 else function
        for decorator in function.decorators:
            mode = self._gradient_mode(outer, decorator)
            if mode is not None:
                return mode
        return True

    def _gradient_mode(self, function: Function, expression: Expression) -> bool | None:
        name = dotted(expression.function if isinstance(expression, Call) else expression)
        if not name:
            return None
        qualified = self.resolver.qualified(function, name)
        if any(candidate in names().gradients_off for candidate in qualified):
            return False
        if any(candidate in names().gradients_on for candidate in qualified):
            return True
        if "torch.set_grad_enabled" in qualified and isinstance(expression, Call) and expression.arguments:
            possible = self.resolver.evaluate(function, expression.arguments[0].value)
            if possible.certain:
                return bool(possible.values[0])
        return None

    # -- scalers, frameworks, optimizers

    @cached_property
    def scaler_name(self) -> str | None:
        """An identifier of the file that speaks of scaling losses or gradients; None when there is none."""
        known = names()
        data_scalers = {
            target
            for function in self.tables.functions
            for event in function.events
            if isinstance(event, Assignment) and isinstance(event.value, Call)
            for target in event.targets
            if dotted(event.value.function).rpartition(".")[2] in known.not_loss_scalers
        }
        ignored = known.not_loss_scalers | {target.rpartition(".")[2] for target in data_scalers}
        for identifier in sorted(self.tables.identifiers - ignored):
            squeezed = identifier.lower().replace("_", "")
            if any(word in squeezed for word in known.scaler_words):
                return identifier
        return None

    @cached_property
    def framework(self) -> str | None:
        """A framework that the file imports and that may scale losses itself."""
        for function in self.tables.functions:
            for item in function.imports:
                found = names().framework_of(item.qualified)
                if found is not None:
                    return found
        return None

    @cached_property
    def rescales_gradients(self) -> bool:
        """The file multiplies or divides `.grad`: scaling by hand."""
        for function in self.tables.functions:
            for event in function.events:
                if isinstance(event, Assignment) and event.operator in ("*", "/"):
                    if any(".grad" in "." + target for target in event.targets):
                        return True
                elif isinstance(event, CallEvent):
                    receiver, method = method_of(event.call)
                    if method in ("mul_", "div_", "mul", "div") and receiver is not None:
                        text = render(receiver)
                        if text.endswith((".grad", ".grad.data")):
                            return True
        return False

    @cached_property
    def computes_with_scale(self) -> bool:
        """The file multiplies or divides by a scaler's scale, or hands it to what may: unscaling by hand.

        Comparing the scale before and after `update()`, to skip a scheduler's step, and logging it are
        neither.
        """
        held: set[str] = set()
        for function in self.tables.functions:
            for event in function.events:
                if isinstance(event, Assignment) and not event.operator and _has_scale(event.value, held):
                    held.update(event.targets)
        for function in self.tables.functions:
            for event in function.events:
                if isinstance(event, Assignment):
                    if event.operator in _PRODUCTS and _has_scale(event.value, held):
                        return True
                    if _is_factor(event.value, held):
                        return True
                elif isinstance(event, Return):
                    if _has_scale(event.value, held):
                        return True
                elif isinstance(event, CallEvent):
                    called = render(event.call.function).lower()
                    rescales = any(word in called for word in _RESCALING_WORDS)
                    for argument in event.call.arguments:
                        if rescales and _has_scale(argument.value, held):
                            return True
                        if _is_factor(argument.value, held):
                            return True
        return False

    @cached_property
    def steps_optimizer(self) -> bool:
        """The file calls `step` on something that looks like an optimizer: it trains."""
        for function in self.tables.functions:
            for event in function.events:
                if isinstance(event, CallEvent):
                    receiver, method = method_of(event.call)
                    if method == "step" and receiver is not None and self.is_optimizer(function, receiver):
                        return True
        return False

    def is_optimizer(self, function: Function, receiver: Expression) -> bool:
        """Whether it looks like an optimizer: by its name, or because torch.optim made it."""
        last = render(receiver).lower()
        if "sched" in last.rpartition(".")[2]:
            return False
        if "opt" in last or "adam" in last or "sgd" in last:
            return True
        name = dotted(receiver)
        if name:
            for scope, item in self.resolver.definitions(function, name)[0]:
                if isinstance(item.value, Call):
                    called = self.resolver.called(scope, item.value)
                    if any(candidate.startswith("torch.optim.") for candidate in called):
                        return True
        return False

    def is_tensor_backward(self, function: Function, call: Call) -> bool:
        """Whether `x.backward(...)` is Tensor.backward, not a method of an engine, a model or a trainer."""
        receiver, method = method_of(call)
        if receiver is None or method != "backward":
            return False
        positional = [argument for argument in call.arguments if not argument.keyword]
        text = render(receiver)
        if positional and "loss" not in text.lower():
            return False
        if isinstance(receiver, Call):
            last = method_of(receiver)[1]
            return last != "super" and not last[:1].isupper()
        name = dotted(receiver) or (receiver.name if isinstance(receiver, Attribute) else "")
        last = name.rpartition(".")[2]
        if last.lower() in names().not_tensors or last[:1].isupper():
            return last[:1].isupper() and "loss" in last.lower()
        for scope, item in self.resolver.definitions(function, name)[0] if name else ():
            if isinstance(item.value, Call):
                made = self.resolver.local_functions(scope, item.value.function)
                if any(maker.kind == "class" for maker in made):
                    return False
        return True

    # -- conditions

    def conditions(self, function: Function, block: int) -> tuple[Condition, ...]:
        """Tests that hold wherever a block runs."""
        found: list[Condition] = []
        for index in function.enclosing(block):
            found.extend(_block_conditions(function.blocks[index]))
        return tuple(found)

    def apart(self, function: Function, first: int, second: int) -> bool:
        """Whether one run of the code never passes through both blocks."""
        one, other = function.enclosing(first), function.enclosing(second)
        statements = {function.blocks[index].statement: index for index in one}
        for index in other:
            block = function.blocks[index]
            twin = statements.get(block.statement)
            if twin is None or twin == index:
                continue
            kinds = {block.kind, function.blocks[twin].kind}
            if kinds in ({"if", "else"}, {"case"}):
                return True
        return exclusive(self.conditions(function, first), self.conditions(function, second))


def exclusive(first: tuple[Condition, ...], second: tuple[Condition, ...]) -> bool:
    """Whether one side demands what the other forbids."""
    return any(Condition(condition.text, not condition.holds) in second for condition in first)


def _block_conditions(block: Block) -> Iterator[Condition]:
    if block.condition is None:
        return
    if block.kind in ("if", "case", "loop"):
        yield from _simple_conditions(block.condition, True)
    elif block.kind == "else":
        yield from _simple_conditions(block.condition, False)


def _simple_conditions(expression: Expression, holds: bool) -> Iterator[Condition]:
    """Split a test into tests that must each hold (or not), without `not` and `!=`."""
    match expression:
        case Operation("not", (operand,)):
            yield from _simple_conditions(operand, not holds)
        case Operation("and", operands) if holds:
            for operand in operands:
                yield from _simple_conditions(operand, True)
        case Operation("or", operands) if not holds:
            for operand in operands:
                yield from _simple_conditions(operand, False)
        case Operation("!=" | "is not" | "not in" as symbol, operands):
            positive = {"!=": "==", "is not": "is", "not in": "in"}[symbol]
            yield from _simple_conditions(Operation(positive, operands), not holds)
        case Operation("==" | "is", (operand, Literal(bool() as value))):
            yield from _simple_conditions(operand, holds is value)
        case Call(Name("bool"), (argument,), _):
            yield from _simple_conditions(argument.value, holds)
        case _:
            yield Condition(render(expression), holds)


def _dtype_name(value: object) -> str | None:
    if isinstance(value, Symbol) and value.qualified.startswith("torch."):
        return _DTYPES.get(value.qualified.removeprefix("torch."))
    return None


def _merged(found: list[Autocast]) -> Autocast:
    """One autocast out of those that a context can be: known only where they agree."""
    first = found[0]
    if len(found) == 1:
        return first
    dtypes = {autocast.dtype for autocast in found}
    enabled = {autocast.enabled for autocast in found}
    devices: tuple[str, ...] | None = ()
    for autocast in found:
        devices = None if devices is None or autocast.devices is None else devices + autocast.devices
    return first._replace(
        devices=tuple(dict.fromkeys(devices)) if devices is not None else None,
        dtype=dtypes.pop() if len(dtypes) == 1 else None,
        enabled=enabled.pop() if len(enabled) == 1 else None,
        conditions=(),
    )


def _has_scale(expression: Expression, held: set[str]) -> bool:
    """Whether it contains `scaler.get_scale()` or a name that holds it, outside of comparisons."""
    if isinstance(expression, Call):
        if method_of(expression)[1] == "get_scale":
            return True
    elif isinstance(expression, Operation) and expression.operator not in _ARITHMETIC:
        return False
    elif dotted(expression) in held:
        return True
    return any(_has_scale(part, held) for part in parts_of(expression))


def _is_factor(expression: Expression, held: set[str]) -> bool:
    """Whether a product or a quotient in it has the scale as an operand."""
    if isinstance(expression, Operation) and expression.operator in _PRODUCTS:
        return any(_has_scale(operand, held) for operand in expression.operands)
    return any(_is_factor(part, held) for part in parts_of(expression))
