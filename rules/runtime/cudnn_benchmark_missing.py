"""A rule on convolutional training that leaves cudnn.benchmark off."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import DETERMINISTIC, Step


class CudnnBenchmarkMissing(SourceRule):
    """Convolutions on inputs of one size trained without cudnn.benchmark.

    What it does
    Finds training on CUDA of convolutional layers on inputs of one size (batches that stack several samples
    as they come, crops of one size, data sets whose images are alike) in programs that never touch
    `torch.backends.cudnn.benchmark`.

    Why it costs
    cuDNN has several algorithms per convolution, and its heuristic does not always pick the fastest. With
    `benchmark` it times them once per shape and keeps the best; the first steps take longer.

    Example
        model = torchvision.models.resnet50().cuda()
        for images, labels in loader:
            ...

    Use instead
        torch.backends.cudnn.benchmark = True

    When it does not apply
    Inputs whose sizes change (detection, speech), which would be timed again and again; runs that must be
    reproducible.
    """

    code = "RUN001"
    name = "cudnn-benchmark-missing"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Performance Tuning Guide, Enable cuDNN auto-tuner: what cudnn.benchmark does",
        "NVIDIA Convolutional Layers User's Guide, Autotuning And cuDNN Heuristics: heuristics do not "
        "always find the fastest algorithm",
    )
    triggers = (".step(", "Trainer(", "Fabric(", "training_step(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.switches.of("torch.backends.cudnn.benchmark", *DETERMINISTIC):
            return
        found = (
            (step, self._shown(context, step), self._reason(context, step)) for step in context.steps.all
        )
        step, shown, (layers, sized) = next(
            ((step, shown, why) for step, shown, why in found if shown is not None and why is not None),
            (None, None, ("", "")),
        )
        if step is None or shown is None:
            return
        by = f" (`{sized}`)" if sized else ""
        function = shown.place.function.qualified_name
        yield self.finding(
            context.at(shown),
            f"This trains convolutions ({layers}) on inputs of one size{by}, and nothing sets "
            "torch.backends.cudnn.benchmark.",
            related=tuple(context.also(event, "the optimizer steps here") for event in step.steps[:1]),
            evidence={"function": function, "convolutions": layers, "fixed_size": sized or None},
            fix=Fix("Set `torch.backends.cudnn.benchmark = True` once before training."),
            identity=function,
        )

    def _shown(self, context: SourceContext, step: Step) -> Event | None:
        """The backward pass of a step, or where a framework runs it, what the program runs for it first."""
        backward = step.backwards[0]
        if context.is_shown(backward):
            return backward
        forwards = (event for event in step.events if event.kind == "forward" and context.is_shown(event))
        return next(forwards, None)

    def _reason(self, context: SourceContext, step: Step) -> tuple[str, str] | None:
        """The convolutional network of a step on a GPU, and the call that gives its inputs one size; None if
        either is unknown."""
        backward, facts = step.backwards[0], context.facts
        networks = [
            (name, module)
            for module in facts.networks_of(facts.loss_of(backward))
            for name in [context.networks.convolutions(module)]
            if name and context.devices.may_be_on_gpu(module)
        ]
        if not networks:
            return None
        sizes = context.sizes
        if sizes.vary(step):
            context.skip(backward, "gets inputs whose sizes change")
            return None
        sized = sizes.fixed(step)
        return (networks[0][0], sized) if sized is not None else None
