"""A rule on models in channels_last that are fed batches in the default layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import Place


class ModelChannelsLastInputNot(SourceRule):
    """A model in channels_last that gets inputs in NCHW.

    What it does
    Finds training loops whose model is converted with `model.to(memory_format=torch.channels_last)` while
    the batches, which the same loop moves to the GPU, never are.

    Why it costs
    The first convolution has to permute its input in every step; from there on the layout of the weights
    decides. The cost is one copy of the batch per step.

    Example
        model = model.to(memory_format=torch.channels_last)
        for images, labels in loader:
            images = images.cuda(non_blocking=True)

    Use instead
        model = model.to(memory_format=torch.channels_last)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True, memory_format=torch.channels_last)

    When it does not apply
    Batches converted in a collate function, a prefetcher or another file; loaders of FFCV and DALI, which
    may write channels last; conversions under a flag.
    """

    code = "FMT003"
    name = "model-cl-input-not"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Channels Last Memory Format tutorial, Converting existing models: convert model and "
        "inputs (propagation of the layout tried on PyTorch 2.13)",
    )
    triggers = ("channels_last",)
    pattern = re.compile(rb"memory_format|torch\.channels_last")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        layouts, seen = context.layouts, set[Place]()
        tensors = [item.event for item in layouts.conversions if not item.is_of_module]
        for event, module in layouts.trained():
            converted = layouts.of_module(module)
            sure = [
                item
                for item in converted
                if item.format == "torch.channels_last" and layouts.is_sure(item, event)
            ]
            copies = layouts.copies(event.first)
            if not sure or len(sure) < len(converted) or not copies or not layouts.is_known(event.first):
                continue
            copy = copies[-1]
            if any(one.loop is event.loop for one in tensors) or layouts.of_value(event.first):
                continue
            if copy.call is None or copy.place in seen or not context.concerns(copy):
                continue
            seen.add(copy.place)
            yield self.finding(
                context.at(copy),
                f"`{context.code(copy)}` stays NCHW while the model has been channels_last since "
                f"{context.where(sure[0].event)}: every batch is permuted.",
                related=(context.also(sure[0].event, "the model is converted here"),),
                evidence={"model": sure[0].event.receiver_name, "input": copy.receiver_name},
                fix=Fix("Convert the batch as well: `.to(device, memory_format=torch.channels_last)`."),
                identity=f"{copy.place.function.qualified_name}:input",
            )
