"""A rule on models in channels_last that are fed batches in the default layout."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.program import Training
from tclint.source.layers.layouts import Conversion, base_of, conversions, mentions
from tclint.source.names.queries import has_star, is_test_path, root_name
from tclint.source.syntax.tables import Call, Literal, dotted, method_of, render


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
    requires = (".backward(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        found = list(conversions(context))
        if any(
            item.layout is None or context.values.kind_of(item.function, item.receiver) != "module"
            for item in found
        ):
            return
        if len(found) != 1 or program.speaks_of("prefetch", "collate", "dali", "ffcv"):
            return
        if mentions(context) != 1:
            return
        model = found[0]
        if not program.unconditional(model.function, model.event.block):
            return
        for training in program.trainings:
            copy = _image_copy(context, training)
            if copy is None or not _feeds(context, training, model):
                continue
            if context.neighbours.mention(("channels_last", "prefetch", "ffcv", "nvidia.dali")):
                return
            yield self.finding(
                context.location(copy.node_id),
                f"`{context.excerpt(copy.node_id)}` stays NCHW while the model has been channels_last since "
                f"line {context.location(model.event.call.node_id).line}: every batch is permuted.",
                related=(context.related(model.event.call.node_id, "the model is converted here"),),
                evidence={
                    "model": render(model.receiver),
                    "input": root_name(method_of(copy)[0] or Literal(None)),
                },
                fix=Fix("Convert the batch as well: `.to(device, memory_format=torch.channels_last)`."),
                identity=f"{training.function.qualified_name}:input",
            )
            return


def _image_copy(context: SourceContext, training: Training) -> Call | None:
    """The copy to the GPU of the loop's first batch variable."""
    function = training.function
    first: Call | None = None
    names = context.program.loop_names(function, training.block)
    for event in function.calls:
        if training.block not in function.enclosing(event.block):
            continue
        receiver, method = method_of(event.call)
        if receiver is None or root_name(receiver) not in names or method not in ("cuda", "to"):
            continue
        text = root_name(receiver).lower()
        if any(word in text for word in ("label", "target", "mask")) or text in ("y", "t"):
            continue
        if not (
            has_star(event.call)
            or context.program.mutually_exclusive(function, event.block, training.backward.block)
        ):
            first = first or event.call
    return first


def _feeds(context: SourceContext, training: Training, model: Conversion) -> bool:
    """The converted model is called in the loop."""
    function = training.function
    name = dotted(base_of(context, model.function, model.receiver))
    assigned = {
        target
        for event in model.function.events
        if isinstance(getattr(event, "value", None), Call)
        for target in getattr(event, "targets", ())
        if getattr(event, "value").node_id == model.event.call.node_id  # noqa: B009
    }
    wanted = {name, *assigned} - {""}
    # A function gets the model under another name.
    wanted |= {
        parameter.name
        for parameter in function.parameters
        for caller, value in context.resolver.passed(function, parameter.name)
        if caller.index == model.function.index and dotted(value) in wanted
    }
    return any(
        dotted(event.call.function) in wanted and training.block in function.enclosing(event.block)
        for event in function.calls
    )
