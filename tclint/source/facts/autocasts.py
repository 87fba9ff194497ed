"""Autocast regions, read from the tables of one file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from tclint.source.names.frameworks import names
from tclint.source.names.queries import (
    Condition,
    bound,
    conditions_of,
    exclusive,
    has_star,
    simple_conditions,
)
from tclint.source.names.resolve import Possible, Resolver, Symbol, dtype_of
from tclint.source.syntax.tables import (
    Call,
    Choice,
    Closure,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Return,
    Subscript,
    dotted,
)

_DEPTH = 6
"""Names and helpers followed."""


class Autocast(NamedTuple):
    """One use of autocast, as far as it is known before running."""

    qualified: str
    """'torch.cuda.amp.autocast', ..."""
    devices: tuple[str, ...] | None
    """'cuda', 'cpu', ... that it can be for; None when not all are known."""
    dtype: str | None
    """'float16', 'bfloat16', ... on a GPU where it can run on one; None when unknown."""
    dtype_given: bool
    """False: `dtype` is the default of the device, which may be unknown."""
    enabled: bool | None
    """None: decided at run time."""
    conditions: tuple[Condition, ...]
    """What holds where it is enabled."""
    node_id: int


class Region(NamedTuple):
    """Code that runs under autocast: a with block and what it encloses, or a decorated function."""

    function: int
    block: int
    autocast: Autocast
    node_id: int
    elsewhere: str = ""
    """'path:line' of a region in another file; its node ids are then those of the call that leads there."""

    @property
    def on_cuda(self) -> bool:
        return self.autocast.devices is None or "cuda" in self.autocast.devices


class Autocasts:
    """Answers about autocast in one file."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.tables = resolver.tables
        self._regions: dict[int, tuple[Region, ...]] = {}
        self._by_block: dict[int, tuple[tuple[Region, ...] | None, dict[int, list[Region]]]] = {}

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
                yield Region(function.index, 0, found[0], found[0].node_id)
        for index, block in enumerate(function.blocks):
            for item in block.items:
                found = self._autocasts(function, item.value)
                if found:
                    yield Region(function.index, index, _merged(found), item.node_id)

    def active(self, function: Function, block: int) -> tuple[Region, ...]:
        """Autocast regions around a block, innermost first."""
        regions = self.regions(function)
        known, by_block = self._by_block.get(function.index, (None, {}))
        if known is not regions:
            by_block = {}
            for region in reversed(regions):
                by_block.setdefault(region.block, []).append(region)
            self._by_block[function.index] = regions, by_block
        return tuple(
            region for enclosing in function.enclosing(block) for region in by_block.get(enclosing, ())
        )

    def effective(self, function: Function, block: int) -> Region | None:
        """The autocast region that is in force at a block; None where the innermost one is disabled, or
        where the block only runs when it is disabled."""
        conditions = conditions_of(function, block)
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
                    guards = tuple(simple_conditions(condition, holds))
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
            case Subscript(Collection("dict", items, keys), key):
                # `{"fp16": autocast(), "fp32": nullcontext()}["fp16"]`
                wanted = self.resolver.evaluate(function, key)
                chosen = [
                    item
                    for item, name in zip(items, keys, strict=False)
                    if isinstance(name, Literal) and wanted.certain and name.value == wanted.values[0]
                ]
                return self._autocasts(function, chosen[-1], depth - 1) if chosen else []
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
                found.append(autocast._replace(enabled=known, node_id=call.node_id))
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
                            bound = Call(value.function, arguments[1:] + call.arguments, call.node_id)
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
        given = bound(call, known.parameters)
        devices = self._devices(function, known.device, given.get("device_type"))
        dtype, dtype_given = self._dtype(function, given.get("dtype"), devices)
        enabled, conditions = self._enabled(function, given.get("enabled"))
        if has_star(call):
            dtype = dtype if "dtype" in given else None
            dtype_given = True
            enabled = enabled if "enabled" in given else None
        return Autocast(qualified, devices, dtype, dtype_given, enabled, conditions, call.node_id)

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
            if self.changes_default:
                return None, False
            if devices is None:
                # `device.type` of a device that comes from elsewhere: on a GPU it is what a GPU's default is.
                return (defaults["cuda"] if self._speaks_of_cuda else None), False
            # `"cuda" if available else "mps"`: what it is on a GPU does not hang on the others.
            if "cuda" in devices:
                return defaults["cuda"], False
            by_device = {defaults.get(device) for device in devices}
            return (by_device.pop() if len(by_device) == 1 else None), False
        dtypes = {dtype_of(value) for value in possible.values}
        if possible.complete and len(dtypes) == 1:
            return dtypes.pop(), True
        return None, True

    def _enabled(
        self, function: Function, expression: Expression | None
    ) -> tuple[bool | None, tuple[Condition, ...]]:
        if expression is None:
            return True, ()
        possible = self.resolver.evaluate(function, expression)
        conditions = tuple(simple_conditions(expression, True))
        # What another file holds is not known here.
        if possible.complete and not any(isinstance(value, Symbol) for value in possible.values):
            truths = {bool(value) for value in possible.values}
            if len(truths) == 1:
                return truths.pop(), ()
        return None, conditions

    @cached_property
    def _speaks_of_cuda(self) -> bool:
        return "cuda" in self.tables.identifiers

    @cached_property
    def changes_default(self) -> bool:
        """The file sets the default dtype of autocast for the whole program."""
        changing = names().changes_autocast_default
        return any(name.rpartition(".")[2] in self.tables.identifiers for name in changing)


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
