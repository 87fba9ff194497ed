"""A rule on tensors that are made on the CPU and then copied to the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tclint.plugin import (
    Constant,
    Event,
    Finding,
    Fix,
    SourceContext,
    SourceRule,
    Thing,
    distinct,
    options_of,
)
from tclint.plugin.source import TRAINS, Place, Value, exclude

_CHOSEN = frozenset({"device", "generator", "pin_memory", "out", "**", "*"})
"""Arguments that choose where the numbers come from or where they are stored."""
_MOST_OPERATIONS = 24
"""The most operations between memory that is filled and the copy of what is computed from it."""


class CpuCreateThenCuda(SourceRule):
    """A tensor made on the CPU and copied to the GPU at once.

    What it does
    Finds `torch.zeros(...).cuda()` and its like (rand, randn, ones, full, arange, ...) with `.cuda()`,
    `.to(device)` or `.type_as(x)`, such tensors as indices of tensors on the GPU, and
    `torch.cuda.FloatTensor(np.random...)`, inside loops, forward methods and training steps; and
    `torch.tensor(0.0, device="cuda")` in every training step. There is one finding for a program; it lists
    the other places.

    Why it costs
    The CPU fills memory, which then crosses PCIe, and without pinned memory the program waits for it.
    Made on the GPU, the tensor is one small kernel.

    Example
        noise = torch.randn(64, 100).cuda()

    Use instead
        noise = torch.randn(64, 100, device="cuda")

    When it does not apply
    Random numbers that must come from the CPU's generator (a `generator` argument, or a fixed seed whose
    numbers matter: on the GPU they differ); pinned tensors; tensors that are made once.
    """

    code = "RUN015"
    name = "cpu-create-then-cuda"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Create tensors directly on the target device: instead of a copy",
    )
    triggers = (".cuda(", ".to(", "torch.cuda.", "torch.tensor(")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        numbers = (
            (item.event, item.event) for item in context.transfers.numbers if context.concerns(item.event)
        )
        for copy, made in distinct(chain(self._found(context), numbers)):
            function = copy.place.function.qualified_name
            shown = made.name.removeprefix("torch.")
            drawn = made.kind == "random"
            yield self.finding(
                context.at(copy),
                f"`{context.code(copy)}` draws numbers on the CPU and copies them."
                if drawn
                else f"`{context.code(copy)}` fills CPU memory and copies it to the GPU.",
                evidence={"creates": shown, "function": function},
                fix=Fix(
                    "Draw them on the GPU: torch.randn(..., device=device); the numbers will differ."
                    if drawn
                    else "Fill it on the GPU: torch.full((), value, device=device), or torch.zeros."
                    if made.kind == "convert"
                    else f"Pass device= to torch.{shown}"
                    + ("; the random numbers will differ." if "rand" in shown else ".")
                ),
                identity=f"{function}:{context.code(copy)}",
                group=self.name,
            )

    def _found(self, context: SourceContext) -> Iterator[tuple[Event, Event]]:
        """(copy, event that fills the memory) in code that runs repeatedly."""
        in_step = {event for step in context.steps.all for event in step.events}
        for event in context.record.of("to", "convert", "op"):
            if event.kind == "op" and (event.name not in ("[]", "[]=") or event not in in_step):
                continue
            if not context.concerns(event) or not context.steps.is_repeated(event):
                continue
            found = [self._filled(context, item, event) for item in self._copied(context, event)]
            if event.kind == "convert":
                found = [self._numbers_of(event)]
            for made in found:
                if made is not None and not made.arguments.keys() & _CHOSEN:
                    yield event, made

    def _copied(self, context: SourceContext, event: Event) -> Iterator[Value]:
        """The tensors that an event copies to a GPU: by `.to(device)`, by `.type_as(on_gpu)`, or because they
        index a tensor there."""
        devices = context.devices
        if event.kind == "to" and event.subject is not None:
            if devices.is_gpu(event.arguments.get("device")) or devices.on_gpu(event.arguments.get("other")):
                yield event.subject
        elif event.kind == "op" and devices.on_gpu(event.subject):
            keys = list(context.facts.held(event.first))
            yield from (key for key in keys if key.kind == "tensor" and devices.on_gpu(key) is False)

    def _filled(self, context: SourceContext, value: Value, copy: Event) -> Event | None:
        """The first event that fills memory for a tensor, if it is computed from nothing else and only the
        copy needs what comes out: the same operations could run on the GPU."""
        pending: list[Value] = [value]
        parts: dict[Thing, Event] = {}
        while pending and len(parts) < _MOST_OPERATIONS:
            part = pending.pop()
            made = part.made if isinstance(part, Thing) else None
            if made is None or not isinstance(part, Thing):
                return None
            if part in parts:
                continue
            parts[part] = made
            is_cast = made.kind == "to" and not made.arguments.keys() & {"device", "other"}
            if made.kind == "op" or is_cast or made.name.endswith("_like"):
                held = [thing for item in made.inputs for thing in context.facts.held(item)]
                tensors = [thing for thing in held if thing.kind == "tensor"]
                if not tensors or not all(map(_is_plain, {*held}.difference(tensors))):
                    return None
                pending += tensors
            elif self._fills(made) is None:
                return None
        places = {copy.place, *(made.place for made in parts.values())}
        if pending or any(not self._reads_for(context, part, copy) <= places for part in parts):
            return None
        if any(map(context.facts.is_of_loader, parts.values())) and not context.facts.is_of_loader(copy):
            return None  # a part of the batch, which is filled beside the steps
        return next(found for made in reversed(parts.values()) if (found := self._fills(made)) is not None)

    def _fills(self, made: Event) -> Event | None:
        """The event that fills memory, if a device may be given to it; None for others."""
        found = made if made.kind == "factory" else self._numbers_of(made)
        return found if found is not None and not found.arguments.keys() & _CHOSEN else None

    def _reads_for(self, context: SourceContext, part: Thing, copy: Event) -> set[Place]:
        """Where a tensor is read, but for what gets it only where the copy is not made."""
        return {
            event.place
            for event in context.flow.readers(part)
            if not any(
                option is part and exclude(guard, copy.path)
                for item in event.inputs
                for option, guard in options_of(item)
            )
        }

    def _numbers_of(self, event: Event) -> Event | None:
        """The event that draws the numbers of a tensor, as in
        `torch.cuda.FloatTensor(numpy.random.rand(3))`."""
        on_gpu = event.name.startswith("torch.cuda.")
        if event.kind != "convert" or not isinstance(event.first, Thing) or not on_gpu:
            return None
        made = event.first.made
        return made if made is not None and made.kind == "random" else None


def _is_plain(thing: Thing) -> bool:
    """Whether something that an operation gets beside tensors is a number, or a container."""
    if thing.operation is None:
        return thing.kind in ("number", "list", "tuple")
    return thing.is_property or all(
        isinstance(item, Constant) or (isinstance(item, Thing) and _is_plain(item))
        for item in thing.operation[1]
    )
