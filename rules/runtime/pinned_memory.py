"""A rule on batches that reach the GPU from pageable memory."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Thing, distinct
from tclint.plugin.source import TRAINS, Place


class PinMemoryMissing(SourceRule):
    """Batches copied to the GPU from memory that is not pinned.

    What it does
    Finds a `DataLoader` without `pin_memory` whose batches a training loop copies to the GPU as they are, in
    whichever function of the program, or a framework that gets the loader. There is one finding for a
    program; it lists the other loaders. In training steps that make their batches themselves it finds tensors
    that are made of NumPy arrays or lists and copied to the GPU, two or more of them: samples of a replay
    buffer, for example.

    Why it costs
    The GPU can only copy from page-locked memory. From other memory the driver first copies through a
    buffer of its own, at about half the rate, and `non_blocking=True` has no effect.

    Example
        loader = DataLoader(dataset, batch_size=64, num_workers=8)
        for images, labels in loader:
            images = images.cuda()

    Use instead
        loader = DataLoader(dataset, batch_size=64, num_workers=8, pin_memory=True)
        for images, labels in loader:
            images = images.cuda(non_blocking=True)

    When it does not apply
    Programs on the CPU, data that lies on the GPU already, options through `**kwargs` that other code
    chooses, `pin_memory=False` written on purpose, and batches that are cast, passed through NumPy or
    computed with before they are copied: that memory would not be pinned.
    """

    code = "RUN007"
    name = "pin-memory-missing"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Enable asynchronous data loading and augmentation: pin_memory",
        "PyTorch CUDA semantics, Use pinned memory buffers: faster and asynchronous copies",
    )
    triggers = ("DataLoader", "from_numpy(", "Tensor(", "torch.tensor(", ".to(", ".cuda(")
    program = ("DataLoader", *TRAINS)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        batches = context.batches
        found = [pair for loader in batches.trained_on for pair in self._unpinned(context, loader)]
        others = [pair for loader in batches.evaluated_on() for pair in self._unpinned(context, loader)]
        for made, copy, by_framework in found:
            by = f"`{context.code(copy)}` on {context.where(copy, made)}"
            yield self.finding(
                context.at(made),
                f"This DataLoader has no pin_memory: {'the framework' if by_framework else by} "
                "copies its batches through a staging buffer.",
                related=(
                    context.also(copy, "its batches are copied to the GPU here"),
                    *(context.also(other, "the same here", is_alike=True) for other, _, _ in others),
                ),
                evidence={"pin_memory": False, "function": made.place.function.qualified_name},
                fix=Fix("Pass pin_memory=True, and non_blocking=True to the copies."),
                identity=f"{made.place.function.qualified_name}:pin_memory",
                group=self.name,
            )

        yield from self._of_arrays(context)

    def _of_arrays(self, context: SourceContext) -> Iterator[Finding]:
        """The copies of arrays, two or more in a function: one alone may be small, such as a game's state."""
        together: dict[tuple[str, Place | None], list[Event]] = {}
        for copy, _ in distinct((item.event, item) for item in context.transfers.arrays):
            if context.concerns(copy):
                loop = copy.loop.place if copy.loop is not None else None
                together.setdefault((copy.place.function.qualified_name, loop), []).append(copy)
        for (function, _), copies in together.items():
            for copy in copies if len(copies) > 1 else ():
                yield self.finding(
                    context.at(copy),
                    f"`{context.code(copy)}` makes a tensor in pageable memory in every step, and waits "
                    "while it is copied to the GPU.",
                    evidence={"pin_memory": False, "function": function, "copies": len(copies)},
                    fix=Fix(
                        "Keep the data in tensors on the GPU, if they fit there; else copy by "
                        "torch.from_numpy(x).pin_memory().to(device, non_blocking=True)."
                    ),
                    identity=f"{function}:{context.code(copy)}",
                    group=f"{self.name} of arrays",
                )

    def _unpinned(self, context: SourceContext, loader: Thing) -> Iterator[tuple[Event, Event, bool]]:
        """(event that makes the loader, first copy of its batches, whether a framework copies them)."""
        batches = context.batches
        copies = batches.copies_of(loader) if batches.is_missing(loader, "pin_memory") else []
        made = loader.made
        if made is not None and copies and context.concerns(made) and not batches.is_on_gpu(loader):
            yield made, copies[0], "@device" in loader.fields
