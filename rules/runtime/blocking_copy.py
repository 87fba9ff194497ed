"""A rule on copies from pinned memory that the host waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import TRUE, Place


class BlockingCopy(SourceRule):
    """A blocking copy from a pinned batch.

    What it does
    Finds `.cuda()` and `.to(device)` without `non_blocking=True` on batches of a loader that pins its memory,
    in training loops and in the functions that they call; and `x.pin_memory().to(device)` without it.

    Why it costs
    The copy could run while the CPU goes on launching kernels; without `non_blocking` the CPU waits until
    it is done.

    Example
        loader = DataLoader(dataset, batch_size=64, pin_memory=True)
        for images, labels in loader:
            images = images.cuda()

    Use instead
        loader = DataLoader(dataset, batch_size=64, pin_memory=True)
        for images, labels in loader:
            images = images.cuda(non_blocking=True)

    When it does not apply
    Loaders that do not pin, or that pin depending on an option; copies to the CPU; batches that are no longer
    in pinned memory, because they were cast, passed through NumPy or computed with before the copy.
    """

    code = "RUN008"
    name = "blocking-h2d"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch CUDA semantics, Use pinned memory buffers: non_blocking copies from pinned memory",
        "PyTorch Performance Tuning Guide, Enable asynchronous data loading and augmentation: pinned "
        "memory for asynchronous copies",
    )
    triggers = ("pin_memory", ".cuda(", ".to(", "tensor(", ".copy_(")
    program = ("pin_memory",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        batches = context.batches
        for copy in batches.copies_of_pinned():
            if batches.is_blocking(copy) and context.concerns(copy):
                shown = context.shown(copy)
                yield self.finding(
                    context.at(copy),
                    f"`{shown}` pins the memory and then waits for the copy.",
                    evidence={"pin_memory": True, "copies": 1},
                    fix=Fix("Pass non_blocking=True to the copy."),
                    identity=f"{copy.place.function.qualified_name}:{shown}",
                )
        seen: set[Place] = set()
        for loader in batches.trained_on:
            copies = [copy for copy in batches.copies_of(loader) if batches.is_blocking(copy)]
            if not copies or loader.fields.get("pin_memory") != TRUE or loader.made is None:
                continue
            for copy in (copy for copy in copies if copy.place not in seen and context.concerns(copy)):
                seen.add(copy.place)
                yield self.finding(
                    context.at(copy),
                    f"`{context.shown(copy)}` waits for the copy, although the loader on "
                    f"{context.where(loader.made, copy)} pins its batches.",
                    related=(context.also(loader.made, "pin_memory=True"),),
                    evidence={"pin_memory": True},
                    fix=Fix(
                        "Copy by `.to(device, non_blocking=True)`, as this function always waits."
                        if copy.kind == "convert"
                        else "Pass non_blocking=True to the copies."
                    ),
                    identity=f"{loader.made.place.function.qualified_name}:copy",
                    group=f"{copy.place.file.path} {loader.made.place.file.path}:{loader.made.place.node_id}",
                )
