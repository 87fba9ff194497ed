"""A rule on batches that reach the GPU from pageable memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, Related, SourceContext, SourceRule
from tclint.source.names.queries import Called, has_star, is_test_path, keyword
from tclint.source.syntax.tables import method_of, render
from tclint.source.training.batch_copies import copies_in_training
from tclint.source.training.loaders import (
    dataset_made_by,
    loaders_of,
    placed_by,
    targets_of,
)
from tclint.source.training.trainers import loader_of_lightning


class PinMemoryMissing(SourceRule):
    """Batches copied to the GPU from memory that is not pinned.

    What it does
    Finds a `DataLoader` without `pin_memory` whose batches a training loop copies to the GPU: in the same
    function, or in one of the project that gets the loader, wrapped or not; or a Trainer of Lightning on a
    GPU, which gets it from `train_dataloader` or as an argument of `fit`.

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
    Programs on the CPU, data that lies on the GPU already, loaders that a framework makes, options through
    `**kwargs` that other code chooses, and `pin_memory=False` written on purpose.
    """

    code = "RUN007"
    name = "pin-memory-missing"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Enable asynchronous data loading and augmentation: pin_memory",
        "PyTorch CUDA semantics, Use pinned memory buffers: faster and asynchronous copies",
    )
    triggers = ("DataLoader",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not context.on_gpu:
            return
        for loader in loaders_of(context):
            if has_star(loader.call) or keyword(loader.call, "pin_memory", 7) is not None:
                continue
            if _in_memory(context, loader):
                continue
            placed = [placed_by(loader.function, name) for name in targets_of(loader)]
            where, copies = context, [call for call in placed if call is not None and program.trainings]
            if not copies and context.amp.framework in (None, "apex"):
                where, copies = copies_in_training(context, loader)
            related: tuple[Related, ...] = ()
            if copies:
                line, file = where.location(copies[0].node_id).line, ""
                if where is not context:
                    file = f" of {os.path.basename(where.path)}"
                says = f"`{where.excerpt(copies[0].node_id)}` on line {line}{file} copies"
                related = (where.related(copies[0].node_id, "its batches are copied to the GPU here"),)
            elif loader_of_lightning(context, loader):
                says = "Lightning's Trainer copies its batches"
            else:
                continue
            yield self.finding(
                context.location(loader.call.node_id),
                f"This DataLoader has no pin_memory: {says} through a staging buffer.",
                related=related,
                evidence={"pin_memory": False, "function": loader.function.qualified_name},
                fix=Fix("Pass pin_memory=True, and non_blocking=True to the copies."),
                identity=":".join((loader.function.qualified_name, *targets_of(loader))),
            )


def _in_memory(context: SourceContext, loader: Called) -> bool:
    for scope, call in dataset_made_by(context, loader):
        last = method_of(call)[1]
        if last in ("TensorDataset", "IterableDataset") or "cuda" in render(call):
            return True
        for maker in context.resolver.local_functions(scope, call.function):
            for member in context.values.members(maker) if maker.kind == "class" else ():
                for event in member.calls:
                    if method_of(event.call)[1] == "cuda":
                        return True
    return keyword(loader.call, "generator") is not None and "cuda" in render(loader.call)
