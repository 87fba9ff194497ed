"""A rule on nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.project.scripts import TRAINS
from tclint.source.run.conditions import exclude
from tclint.source.run.facts import distinct
from tclint.source.run.values import Event, Thing

_CLASS = "torch.nn.DataParallel"
_PER_PROCESS = "torch.nn.parallel.DistributedDataParallel"


class DataParallel(SourceRule):
    """Training with nn.DataParallel.

    What it does
    Finds `nn.DataParallel(model)`, or a class of the project derived from it, around what the
    program trains, where it has no DistributedDataParallel.

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
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        facts = context.facts
        if any(event.name == _PER_PROCESS for event in context.record.of("wrap")):
            return
        trained = {
            module: backward
            for step in context.steps.all
            for backward in step.backwards
            for module in facts.networks_of(facts.loss_of(backward))
        }
        for event in distinct(context.record.of("wrap", "make")):
            wrapped = [*facts.things(event.first), *facts.things(event.result)]
            backwards = (trained[module] for module in wrapped if module in trained)
            # A wrap for evaluation, in a branch that excludes training, copies nothing in any step.
            backward = next((item for item in backwards if not exclude(event.path, item.path)), None)
            if backward is None or not self._is_parallel(event) or not context.concerns(event):
                continue
            yield self.finding(
                context.at(event),
                f"`{context.code(event)}` drives all GPUs from one process and copies the model in every "
                "step.",
                related=(context.also(backward, "the model is trained here"),),
                evidence={"function": event.place.function.qualified_name},
                fix=Fix("Use DistributedDataParallel with one process per GPU, started by torchrun."),
                identity=f"{event.place.function.qualified_name}:{context.code(event)}",
            )

    def _is_parallel(self, event: Event) -> bool:
        """Whether an event wraps a model in DataParallel or in a project's class derived from it."""
        made = event.result
        bases = made.cls.library_bases() if isinstance(made, Thing) and made.cls is not None else ()
        return event.name == _CLASS or any(base.name == _CLASS for base in bases)
