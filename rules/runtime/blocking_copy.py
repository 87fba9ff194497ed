"""A rule on copies from pinned memory that the host waits for."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import Called, has_star, is_test_path, keyword, positional
from tclint.source.syntax.tables import Call, Literal, method_of, render
from tclint.source.training.batch_copies import copies_in_training, to_gpu
from tclint.source.training.loaders import loaders_of


class BlockingCopy(SourceRule):
    """A blocking copy from a pinned batch.

    What it does
    Finds `.cuda()` and `.to(device)` without `non_blocking=True` on batches of a loader that pins its memory,
    in a training loop of the same file or of one that gets the loader; and `x.pin_memory().to(device)`
    without it.

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
    Loaders that do not pin, or that pin depending on an option; copies to the CPU.
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
    triggers = ("pin_memory",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path) or not context.on_gpu:
            return
        yield from self._pinned_by_hand(context)
        for loader in loaders_of(context):
            pinned = keyword(loader.call, "pin_memory", 7)
            if pinned != Literal(True) or has_star(loader.call):
                continue
            where, found = copies_in_training(context, loader)
            copies = [copy for copy in found if not _non_blocking(copy)]
            if not copies:
                continue
            if where is not context:
                yield self._copied_elsewhere(context, loader, where, copies)
                continue
            for copy in copies:
                yield self.finding(
                    context.location(copy.node_id),
                    f"`{context.excerpt(copy.node_id)}` waits for the copy, although the loader pins its "
                    "batches.",
                    related=(context.related(loader.call.node_id, "pin_memory=True"),),
                    evidence={"pin_memory": True},
                    fix=Fix("Pass non_blocking=True to the copies."),
                    identity=f"{loader.function.qualified_name}:copy",
                    group=f"{loader.function.index}:{loader.call.node_id}",
                )

    def _copied_elsewhere(
        self, context: SourceContext, loader: Called, where: SourceContext, copies: list[Call]
    ) -> Finding:
        shown, line = where.excerpt(copies[0].node_id), where.location(copies[0].node_id).line
        return self.finding(
            context.location(loader.call.node_id),
            f"This loader pins its batches, and `{shown}` on line {line} of "
            f"{os.path.basename(where.path)} waits for the copy all the same.",
            related=tuple(where.related(copy.node_id, "this copy waits") for copy in copies),
            evidence={"pin_memory": True, "copies": len(copies)},
            fix=Fix("Pass non_blocking=True to the copies."),
            identity=f"{loader.function.qualified_name}:copy",
        )

    def _pinned_by_hand(self, context: SourceContext) -> Iterator[Finding]:
        """`torch.from_numpy(x).pin_memory().to(device)`."""
        for function, event, _ in context.program.methods("cuda", "to"):
            receiver, method = method_of(event.call)
            pinned = isinstance(receiver, Call) and method_of(receiver)[1] == "pin_memory"
            if not pinned or _non_blocking(event.call):
                continue
            if method == "cuda" or to_gpu(context, function, event.call):
                yield self.finding(
                    context.location(event.call.node_id),
                    f"`{context.excerpt(event.call.node_id)}` pins the memory and then waits for the copy.",
                    evidence={"pin_memory": True, "copies": 1},
                    fix=Fix("Pass non_blocking=True to the copy."),
                    identity=f"{function.qualified_name}:{render(event.call)}",
                )


def _non_blocking(call: Call) -> bool:
    given = keyword(call, "non_blocking")
    if given is None and method_of(call)[1] == "cuda" and len(positional(call)) > 1:
        return True
    if given is None and method_of(call)[1] == "to" and len(positional(call)) > 1:
        return True
    return given is not None or has_star(call) or keyword(call, "async") is not None
