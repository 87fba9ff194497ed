"""A rule on batches in channels_last that are fed to models in the default layout."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.program import Training
from tclint.source.layers.convolutional import Models
from tclint.source.layers.layouts import conversions, mentions
from tclint.source.layers.library_models import Built
from tclint.source.names.queries import is_test_path
from tclint.source.syntax.tables import Call, Expression, Function, dotted, method_of, render


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
    requires = (".backward(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        found = list(conversions(context))
        if not found or mentions(context) != len(found):
            return
        if any(
            item.layout is None or context.values.kind_of(item.function, item.receiver) != "tensor"
            for item in found
        ):
            return
        for training in program.trainings:
            inside = [
                item
                for item in found
                if item.function.index == training.function.index
                and training.block in item.function.enclosing(item.event.block)
                and not program.mutually_exclusive(item.function, item.event.block, training.backward.block)
            ]
            if not inside:
                continue
            model = _model_made_here(context, training)
            if not model or context.neighbours.mention(("channels_last",)):
                continue
            item = inside[0]
            yield self.finding(
                context.location(item.event.call.node_id),
                f"`{context.excerpt(item.event.call.node_id)}` feeds `{model}`, which is never "
                "converted: its "
                "weights are permuted in every step.",
                related=(context.related(training.backward.call.node_id, "in this training loop"),),
                evidence={"model": model, "input": render(item.receiver)},
                fix=Fix(
                    f"Convert the model once: `{model} = {model}.to(memory_format=torch.channels_last)`."
                ),
                identity=f"{training.function.qualified_name}:model",
            )
            return


def _model_made_here(context: SourceContext, training: Training) -> str:
    """The name of a model that the loop calls and that the file makes, or another one that is known."""
    program = context.program
    function = training.function
    models = Models(context)
    for event in function.calls:
        if training.block not in function.enclosing(event.block):
            continue
        name = dotted(event.call.function)
        if not name or program.resolver.qualified(function, name):
            continue
        for scope, item in program.resolver.definitions(function, name)[0]:
            if isinstance(item.value, Call) and _makes_convolutions(context, scope, item.value):
                return name
        made = list(models.made(function, name))
        if made and all(isinstance(item, Built) for item in made):
            return name
    return ""


def _makes_convolutions(context: SourceContext, scope: Function, call: Call) -> bool:
    base: Expression = call
    while isinstance(base, Call):
        for name in context.resolver.called(scope, base):
            if name.startswith(("torchvision.models.", "torch.nn.Conv2d")) or name == "timm.create_model":
                return True
        for maker in context.resolver.local_functions(scope, base.function):
            if maker.kind == "class":
                return any(layer.qualified == "torch.nn.Conv2d" for layer in context.values.layers(maker))
        receiver, method = method_of(base)
        if receiver is None or method not in ("cuda", "to", "train", "half", "float"):
            return False
        base = receiver
    return False
