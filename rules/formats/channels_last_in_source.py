"""Training scripts that run 2-D convolutions under autocast in the default memory format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from tclint.plugin import Call, Effect, Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.autocasts import Region
from tclint.source.layers.convolutional import Models, compiles
from tclint.source.layers.layouts import batch_copy
from tclint.source.layers.library_models import Built
from tclint.source.names.queries import is_test_path
from tclint.source.training.across_files import functions_that_train
from tclint.source.training.models_under_autocast import models_called
from tclint.source.training.trainers import convolutional_in_16_bits

_WORDS = (
    "channels_last",
    "memory_format",
    "ChannelsLast",
    "torch.compile(",
    "torch.compile\n",
    "nhwc",
    "NHWC",
)
"""Where these stand, somebody has thought about the format, or a compiler chooses it."""


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
    # Where another file goes backward, this one still hands it the optimizer, or clears its gradients.
    pattern = re.compile(rb"\.backward\(|zero_grad\(|optim|\.fit\(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if (
            is_test_path(context.path)
            or any(word in line for line in context.lines() for word in _WORDS)
            or compiles(context)
        ):
            return
        for region, model in convolutional_in_16_bits(context):
            if not context.neighbours.mention(_WORDS):
                yield self._finding(context, region, model, "self.model", True, None)
            return
        if not functions_that_train(context):
            return
        models = Models(context)
        for region, function, call, name in models_called(context):
            made = list(models.made(function, name))
            known = [item for item in made if isinstance(item, Built)]
            if not known or any(isinstance(item, str) for item in made):
                continue
            if context.neighbours.mention(_WORDS):
                return
            copy = batch_copy(context, function, call) if known[0].takes_images else None
            yield self._finding(context, region, known[0], name, len(made) == 1, copy)
            return

    def _finding(
        self,
        context: SourceContext,
        region: Region,
        model: Built,
        name: str,
        only: bool,
        copy: Call | None,
    ) -> Finding:
        line = context.location(region.node_id).line
        line_made = model.context.location(model.node_id).line
        shown = f"`{model.name}`" + (", the default," if model.is_default else "")
        when = "" if _always_on(context, region) else " where that is on"
        runs = context.related(region.node_id, "it runs under autocast here")
        location, related, elsewhere = context.location(model.node_id), [runs], ""
        if model.context is not context:
            location = context.location(region.node_id)
            elsewhere = f" of {os.path.basename(model.context.path)}"
            related = [model.context.related(model.node_id, "the model is made here")]
        elif copy is not None:
            related.append(context.related(copy.node_id, "the batch is copied to the GPU here"))
        return self.finding(
            location,
            f"{shown} (line {line_made}{elsewhere}) trains under autocast{when} (line {line}) in "
            "the default memory format (NCHW): no file that runs with it says channels_last.",
            level="info",
            related=tuple(related),
            effect=Effect(
                unknown="the source pass does not know the model's shapes; PyTorch's tutorial measures 22 % "
                "for ResNet-50 in mixed precision"
            ),
            evidence={
                "model": model.name,
                "autocast_line": line,
                "dtype": region.autocast.dtype,
                "convolutions_written": model.convolutions or None,
                "channels_last": None,
                "made_in_one_place": only and not model.is_default,
                "views": model.views,
            },
            fix=Fix(
                f"`{name} = {name}.to(memory_format=torch.channels_last)` after building, and convert every "
                "batch: `images = images.to(memory_format=torch.channels_last)`."
            ),
            identity=f"layout:{model.name}",
        )

    def change(self, finding: Finding, context: Any) -> Any:  # noqa: ARG002
        from tclint.analysis.change import CHANNELS_LAST

        return CHANNELS_LAST if any(op.kind == "conv" for op in context.graph.ops) else None


def _always_on(context: SourceContext, region: Region) -> bool:
    """Whether autocast is on wherever the program runs, as far as its own lines say."""
    function = context.tables.functions[region.function]
    return bool(
        region.autocast.enabled
        and not region.autocast.conditions
        and context.program.unconditional(function, region.block)
    )
