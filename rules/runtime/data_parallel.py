"""Rules on one process that trains on several GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Thing, distinct
from tclint.plugin.source import TRAINS, exclude

_CLASS = "torch.nn.DataParallel"
_PER_PROCESS = "torch.nn.parallel.DistributedDataParallel"
_SPREADS = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
"""Values of `device_map` that spread a model's layers over all GPUs that are visible."""


def _trained(context: SourceContext) -> dict[Thing, Event]:
    """Each network that a training step differentiates, and its backward pass."""
    facts = context.facts
    return {
        module: backward
        for step in context.steps.all
        for backward in step.backwards
        for module in facts.networks_of(facts.loss_of(backward))
    }


class DataParallel(SourceRule):
    """Training with nn.DataParallel.

    What it does
    Finds `nn.DataParallel(model)`, or a class of the project derived from it, around what the
    program trains, and `nn.parallel.data_parallel(model, x)`, where it has no DistributedDataParallel.

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
    triggers = ("DataParallel", "data_parallel(")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        facts, trained = context.facts, _trained(context)
        if any(event.name == _PER_PROCESS for event in context.record.of("wrap")):
            return
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


class LayersOverGpus(SourceRule):
    """A trained model whose layers `device_map` spreads over the GPUs.

    What it does
    Finds models that are loaded with `device_map="auto"`, or another value that spreads their layers, and
    that the program trains.

    Why it costs
    Each GPU holds some of the layers and waits while the others compute: of several GPUs one works at a time,
    however many there are. With a process per GPU all of them work, each on its own batch. On a single GPU
    the setting changes nothing.

    Example
        model = AutoModelForCausalLM.from_pretrained(name, device_map="auto")
        Trainer(model, arguments, train_dataset=dataset).train()

    Use instead
        model = AutoModelForCausalLM.from_pretrained(name)   # under torchrun or accelerate launch
        Trainer(model, arguments, train_dataset=dataset).train()

    When it does not apply
    Models that no single GPU can hold, which FSDP or DeepSpeed shard at less cost; inference; a map of the
    program's own, such as `device_map={"": rank}`.
    """

    code = "RUN033"
    name = "layers-over-gpus"
    level = "info"
    confidence = "medium"
    sources = (
        "transformers Parallelism methods, Model parallelism: only one GPU is used at a time in naive model "
        "parallelism",
    )
    triggers = ("device_map",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        facts, trained = context.facts, _trained(context)
        for made in distinct(context.record.of("make")):
            chosen = facts.texts(made.arguments.get("device_map")) & _SPREADS
            backward = next((trained[item] for item in facts.things(made.result) if item in trained), None)
            if not chosen or backward is None or not context.concerns(made):
                continue
            yield self.finding(
                context.at(made),
                f'device_map="{min(chosen)}" spreads the layers of this model over all visible GPUs, which '
                "take turns in training.",
                related=(context.also(backward, "the model is trained here"),),
                evidence={"device_map": min(chosen)},
                fix=Fix("Leave it out and start a process per GPU, by torchrun or accelerate launch."),
                identity=f"{made.place.function.qualified_name}:device_map",
                group=self.name,
            )
