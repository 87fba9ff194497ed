"""A rule on batches in channels_last that are fed to models in the default layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, render
from tclint.plugin.source import Place


class InputChannelsLastModelNot(SourceRule):
    """Inputs in channels_last for a model that is not.

    What it does
    Finds training loops that convert their batches to channels_last, in programs whose model is known to
    be convolutional from the file or the project's modules, and is never converted.

    Why it costs
    Convolutions take channels_last when one of their operands is, so the weights of every layer are permuted
    in every step, forward and backward.

    Example
        model = torchvision.models.resnet50().cuda()
        for images, labels in loader:
            images = images.to("cuda", memory_format=torch.channels_last)

    Use instead
        model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)

    When it does not apply
    Models that are known only at run time, and projects that mention channels_last in another file.
    """

    code = "FMT004"
    name = "input-cl-model-not"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Channels Last Memory Format tutorial, Converting existing models: convert model and inputs",
    )
    triggers = ("channels_last",)
    pattern = re.compile(rb"memory_format|torch\.channels_last")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        layouts, seen = context.layouts, set[Place]()
        for event, module in layouts.trained():
            sure = [
                item.event
                for item in layouts.of_value(event.first)
                if item.format == "torch.channels_last" and layouts.is_sure(item, event)
            ]
            if not sure or sure[0].place in seen or layouts.of_module(module) or event.call is None:
                continue
            if not context.networks.convolves(module) or not context.concerns(sure[0]):
                continue
            seen.add(sure[0].place)
            model = render(event.call.function)
            yield self.finding(
                context.at(sure[0]),
                f"`{context.code(sure[0])}` feeds `{model}`, which is never converted: its "
                "weights are permuted in every step.",
                related=(context.also(event, "in this training loop"),),
                evidence={"model": model, "input": sure[0].receiver_name},
                fix=Fix(
                    f"Convert the model once: `{model} = {model}.to(memory_format=torch.channels_last)`."
                ),
                identity=f"{sure[0].place.function.qualified_name}:model",
            )
