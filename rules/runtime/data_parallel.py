"""A rule on nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import Called, any_word, is_test_path
from tclint.source.syntax.tables import Function, dotted, method_of, render

_CLASSES = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")


class DataParallel(SourceRule):
    """Training with nn.DataParallel.

    What it does
    Finds `nn.DataParallel(model)`, or a class of the project derived from it, in files that train and have no
    DistributedDataParallel.

    Why it costs
    One process drives all GPUs: in every step it copies the model to each, splits the batch and gathers
    the outputs on the first GPU, under one Python interpreter lock. DistributedDataParallel has a process
    per GPU and overlaps the reduction of gradients with the backward pass, also on a single machine.

    Example
        model = nn.DataParallel(model)

    Use instead
        model = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])   # under torchrun

    When it does not apply
    `isinstance` checks, unwrapping or loading checkpoints, inference.
    """

    code = "RUN013"
    name = "data-parallel"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Use DistributedDataParallel instead of DataParallel: why it is"
        " faster",
        "PyTorch CUDA semantics, Use nn.parallel.DistributedDataParallel instead of multiprocessing or "
        "nn.DataParallel: one process per GPU",
        "PyTorch torch.nn.DataParallel: its warning recommends DistributedDataParallel",
    )
    triggers = ("DataParallel",)
    requires = ("backward(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or "DistributedDataParallel" in context.tables.identifiers:
            return
        if not program.trainings or context.amp.framework or "DDP" in context.tables.identifiers:
            return
        for called in (*program.calls(*_CLASSES), *_subclassed(context)):
            if not called.call.arguments or _evaluating(called.function):
                continue
            yield self.finding(
                context.location(called.call.node_id),
                f"`{context.excerpt(called.call.node_id)}` drives all GPUs from one process and copies the "
                "model in every step.",
                related=(context.related(program.trainings[0].backward.call.node_id, "this file trains"),),
                evidence={"function": called.function.qualified_name},
                fix=Fix("Use DistributedDataParallel with one process per GPU, started by torchrun."),
                identity=f"{called.function.qualified_name}:{render(called.call)}",
            )


def _evaluating(function: Function) -> bool:
    return any_word(function.name, ("eval", "test", "infer", "predict", "load", "valid"))


def _subclassed(context: SourceContext) -> Iterator[Called]:
    """Calls of the project's classes that derive from nn.DataParallel and say so in their names."""
    for function, event in context.tables.calls:
        if "DataParallel" not in method_of(event.call)[1]:
            continue
        for where, made in context.definitions_of(function, event.call.function, (b"DataParallel",)):
            bases = [
                name
                for base in made.bases
                if dotted(base)
                for name in where.resolver.qualified(where.tables.module, dotted(base))
            ]
            if any(name in _CLASSES or name.endswith(".DataParallel") for name in bases):
                yield Called(bases[0], event.call, function, event.block, 0)
