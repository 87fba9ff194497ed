"""A rule on tensors that are made on the CPU and then copied to the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.project.scripts import TRAINS
from tclint.source.run.facts import distinct
from tclint.source.run.values import Event, Thing

_CHOSEN = frozenset({"device", "generator", "pin_memory", "out", "**", "*"})
"""Arguments that choose where the numbers come from or where they are stored."""


class CpuCreateThenCuda(SourceRule):
    """A tensor made on the CPU and copied to the GPU at once.

    What it does
    Finds `torch.zeros(...).cuda()` and its like (rand, randn, ones, full, arange, ...) with `.cuda()` or
    `.to(device)`, and `torch.cuda.FloatTensor(np.random...)`, inside loops, forward methods and training
    steps. There is one finding for a program; it lists the other places.

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
    triggers = (".cuda(", ".to(", "torch.cuda.")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for copy, made in distinct(self._found(context)):
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
                    else f"Pass device= to torch.{shown}"
                    + ("; the random numbers will differ." if "rand" in shown else ".")
                ),
                identity=f"{function}:{context.code(copy)}",
                group=self.name,
            )

    def _found(self, context: SourceContext) -> Iterator[tuple[Event, Event]]:
        """(copy, event that fills the memory) in code that runs repeatedly."""
        for event in context.record.of("to", "convert"):
            if not context.concerns(event) or not context.steps.is_repeated(event):
                continue
            made = self._numbers_of(event) if event.kind == "convert" else None
            if event.kind == "to" and context.devices.is_gpu(event.arguments.get("device")):
                filled = event.subject.made if isinstance(event.subject, Thing) else None
                readers = {reader.place for reader in context.flow.readers(event.subject)}
                if filled is not None and readers <= {event.place}:
                    made = filled if filled.kind == "factory" else self._numbers_of(filled)
            if made is not None and not made.name.endswith("_like") and not made.arguments.keys() & _CHOSEN:
                yield event, made

    def _numbers_of(self, event: Event) -> Event | None:
        """The event that draws the numbers of a tensor, as in
        `torch.cuda.FloatTensor(numpy.random.rand(3))`."""
        on_gpu = event.name.startswith("torch.cuda.")
        if event.kind != "convert" or not isinstance(event.first, Thing) or not on_gpu:
            return None
        made = event.first.made
        return made if made is not None and made.kind == "random" else None
