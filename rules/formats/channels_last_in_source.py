"""Training scripts that run 2-D convolutions under autocast in the default memory format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tclint.plugin import Effect, Event, Finding, Fix, SourceContext, SourceRule, Thing, render
from tclint.plugin.source import Network, Place, Region

_HALF = frozenset({"torch.float16", "torch.bfloat16"})


class ChannelsLastMissingInSource(SourceRule):
    """A convolutional model runs in NCHW, although Tensor Core convolutions want NHWC.

    What it does
    Finds scripts that train under autocast (mixed precision of Accelerate and of Lightning's Trainer
    included) in float16 or bfloat16 on a GPU, whose model is a network of 2-D convolutions as far as the
    script or the project's own modules show, and where neither the script nor a project file that runs
    with it mentions channels_last.

    Why it costs
    cuDNN's Tensor Core kernels read channels innermost. In NCHW each convolution either runs a slower
    kernel or transposes its tensors before and after.

    Example
        model = torchvision.models.resnet50().cuda()
        for images, labels in loader:
            with torch.autocast("cuda"):
                loss = criterion(model(images.cuda()), labels.cuda())

    Use instead
        model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
        for images, labels in loader:
            images = images.cuda().to(memory_format=torch.channels_last)
            with torch.autocast("cuda"):
                loss = criterion(model(images), labels.cuda())

    When it does not apply
    Models with attention or 3-D convolutions, and those that are mostly 1-D. Models that are chosen only
    when the program runs, through a configuration file or a registry that classes add themselves to (a
    dict of models counts if each of them is convolutional). Programs that use torch.compile, which
    chooses the layout of convolutions itself. Whether it pays off depends on the shapes, which a script
    does not show: give tclint the model as `file.py:callable` to have it priced. `--fix` converts a model
    that one line makes and whose classes never call .view(...), which may fail in another format, and the
    batches of a library's model.
    """

    code = "FMT001"
    name = "channels-last-missing"
    level = "warning"
    confidence = "medium"
    sources = (
        "PyTorch Channels Last Memory Format tutorial: 22 % for ResNet-50, 8 to 35 % for a list of models",
        "NVIDIA Convolutional Layers User's Guide, Tensor Layouts In Memory: NCHW vs NHWC: NHWC is "
        "recommended",
    )
    triggers = ("autocast", "mixed_precision", "precision=")
    # If another file calls backward, this one still makes the optimizer or clears the gradients.
    pattern = re.compile(rb"\.backward\(|zero_grad\(|optim|\.fit\(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        # The program deals with the format itself, or a compiler chooses it.
        compiled = any(
            event.name in ("torch.compile", ".compile") for event in context.record.of("wrap", "call")
        )
        if context.layouts.conversions or compiled:
            return
        calls: dict[Place, list[tuple[Event, Thing]]] = {}
        for event, module in context.layouts.trained():
            calls.setdefault(event.place, []).append((event, module))
        seen = set[Place]()
        for place, several in calls.items():
            event, module = several[0]
            made = module.made
            region = _region(context, event)
            if region is None or made is None or made.place in seen:
                continue
            networks = [context.networks.convolutional(item, call) for call, item in several]
            network = networks[0]
            known = {item for _, item in several}
            others = {
                item for call in context.record.of("call") if call.place == place for item in call.inputs[:1]
            }
            if network is None or None in networks or others - known:
                continue
            if not all(context.networks.is_trained(item, call) for call, item in several):
                continue
            runs = next(item for item in context.record.of("enter") if item.subject is region.context)
            if not context.concerns(runs) and not context.concerns(made):
                continue
            seen.add(made.place)
            only = len({item.made.place for item in known if item.made is not None}) == 1
            yield self._finding(context, runs, event, made, network, only)

    def _finding(
        self, context: SourceContext, runs: Event, call: Event, made: Event, network: Network, only: bool
    ) -> Finding:
        shown = f"`{network.name}`" + (", the default," if network.is_default else "")
        autocast = next(context.facts.things(runs.subject))
        when = "" if context.facts.is_on(autocast) is True and not runs.path else " where that is on"
        copies = context.layouts.copies(call.first) if network.takes_images else []
        is_here = context.lints(made)
        location = context.at(made if is_here else runs)
        related = [
            context.also(runs, "it runs under autocast here")
            if is_here
            else context.also(made, "the model is made here")
        ]
        related += [context.also(copy, "the batch is copied to the GPU here") for copy in copies[:1]]
        name = render(call.call.function) if call.call is not None else "model"
        return self.finding(
            location,
            f"{shown} ({context.where(made)}) trains under autocast{when} ({context.where(runs)}) in "
            "the default memory format (NCHW): nothing in the program converts it.",
            level="info",
            related=tuple(related),
            effect=Effect(
                unknown="the source pass does not know the model's shapes; PyTorch's tutorial measures 22 % "
                "for ResNet-50 in mixed precision"
            ),
            evidence={
                "model": network.name,
                "autocast_line": context.at(runs).line,
                "dtype": context.autocasts.dtype_on_gpu(autocast).removeprefix("torch."),
                "convolutions_written": network.convolutions or None,
                "channels_last": None,
                "made_in_one_place": only and len(copies) < 2 and not network.is_default,
                "views": network.views,
            },
            fix=Fix(
                f"`{name} = {name}.to(memory_format=torch.channels_last)` after building, and convert every "
                "batch: `images = images.to(memory_format=torch.channels_last)`."
            ),
            identity=f"layout:{network.name}",
        )

    def change(self, finding: Finding, context: Any) -> Any:  # noqa: ARG002
        from tclint.plugin.graph import CHANNELS_LAST

        return CHANNELS_LAST if any(op.kind == "conv" for op in context.graph.ops) else None


def _region(context: SourceContext, call: Event) -> Region | None:
    """The 16-bit autocast region in which a call of a model, or its convolutions, run."""
    inside = (event for event in context.record.inside(call) if event.kind == "forward")
    for event in (call, *inside):
        found = context.autocasts.around(event)
        if found is None or context.autocasts.dtype_on_gpu(found[1]) not in _HALF:
            continue
        if context.facts.is_on(found[1], event.path) is not False:
            return found[0]
    return None
