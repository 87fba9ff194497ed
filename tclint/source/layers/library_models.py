"""Models of libraries that are networks of 2-D convolutions, by the calls that make them."""

from __future__ import annotations

import re
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.layers.configurations import known_values
from tclint.source.names.queries import keyword, words
from tclint.source.names.resolve import Symbol
from tclint.source.syntax.tables import Call, Expression, Function, Literal, Name, Subscript

_FAMILIES = re.compile(
    r"resne[tx]|resnest|res2ne[tx]|vgg|densenet|efficientnet|mobilenet|mobileone|regnet|convnext|inception"
    r"|googlenet|shufflenet|squeezenet|mnasnet|alexnet|xception|darknet|^dla\d|hrnet|ghostnet|^dpn\d|nfnet|rexnet"
    r"|repvgg|vovnet|^fcn_|deeplab|lraspp|fasterrcnn|maskrcnn|keypointrcnn|retinanet|^fcos|^ssd300|ssdlite"
)
"""In names of torchvision's and timm's models, in lower case: networks of 2-D convolutions."""
_NOT_FAMILIES = re.compile(r"vit|swin|former|3d|2plus1d|mixer|deit|clip|lambda|halo|botnet|coat|video")
_DETECTORS = re.compile(r"rcnn|retinanet|fcos|ssd")
"""Called with a list of images."""
_SMP_CLASSES = words("Unet UnetPlusPlus MAnet Linknet FPN PSPNet DeepLabV3 DeepLabV3Plus PAN UPerNet")


class Built(NamedTuple):
    """A convolutional model and where it is made."""

    name: str
    """As a reader knows it: 'torchvision.models.resnet50', 'UNet'."""
    convolutions: int
    """Conv2d layers written in its classes; 0 for a model of a library."""
    context: SourceContext
    """Of the file that makes it."""
    node_id: int
    """Where that file does."""
    is_default: bool = False
    """Chosen by an option, of which this is the default."""
    views: bool = False
    """Its classes, as far as they are the project's own, call `.view(...)`."""

    @property
    def takes_images(self) -> bool:
        """A model of a library that is called with one batch [N, C, H, W]."""
        return not self.convolutions and not _DETECTORS.search(self.name)


NOT = "not convolutional"
"""Said of a model that is known to be something else, or that has parts that are."""


def library_model(context: SourceContext, scope: Function, call: Call) -> Built | str | None:
    """A model of torchvision, timm or segmentation_models_pytorch; None when it is none that is known."""
    chosen = _chosen_of_torchvision(context, scope, call)
    if chosen is not None:
        return chosen
    for qualified in context.resolver.called(scope, call):
        last = qualified.rpartition(".")[2]
        if qualified in ("timm.create_model", "timm.models.create_model"):
            return _named(context, scope, call, "timm", keyword(call, "model_name", 0))
        if qualified in ("torchvision.models.get_model", "torchvision.models.segmentation.get_model"):
            return _named(context, scope, call, "torchvision", keyword(call, "name", 0))
        if qualified.startswith("torchvision.models."):
            return _family(context, f"torchvision.models.{last}", qualified.lower(), call.node_id)
        if qualified.startswith("efficientnet_pytorch.EfficientNet"):
            return Built("efficientnet_pytorch.EfficientNet", 0, context, call.node_id)
        if qualified == "torch.hub.load":
            repository = keyword(call, "repo_or_dir", 0)
            if isinstance(repository, Literal) and "pytorch/vision" in str(repository.value):
                return _named(context, scope, call, "torchvision", keyword(call, "model", 1))
        if qualified.startswith("segmentation_models_pytorch.") and last in _SMP_CLASSES:
            encoder = keyword(call, "encoder_name", 0)
            text = "resnet34" if encoder is None else only_text(context, scope, encoder)[0]
            # Whatever encodes, these decode with 2-D convolutions.
            if _NOT_FAMILIES.search(text) or text.startswith("mit_"):
                return NOT
            return Built(f"segmentation_models_pytorch.{last}", 0, context, call.node_id)
    return None


def _chosen_of_torchvision(context: SourceContext, scope: Function, call: Call) -> Built | str | None:
    """`models.__dict__[args.arch](...)` and `getattr(models, args.arch)(...)`."""
    match call.function:
        case Subscript(Name(table), key) if table.endswith(".__dict__"):
            holder = table.removesuffix(".__dict__")
        case Call(Name("getattr"), (first, second, *_), _) if isinstance(first.value, Name):
            holder, key = first.value.dotted, second.value
        case _:
            return None
    if "torchvision.models" not in context.resolver.qualified(scope, holder):
        return None
    return _named(context, scope, call, "torchvision", key)


def _named(
    context: SourceContext, scope: Function, call: Call, library: str, name: Expression | None
) -> Built | str | None:
    if name is None:
        return None
    text, certain = only_text(context, scope, name)
    if not text:
        return None
    prefix = "torchvision.models." if library == "torchvision" else "timm "
    found = _family(context, f"{prefix}{text}", text.lower(), call.node_id)
    return found._replace(is_default=not certain) if isinstance(found, Built) else found


def only_text(context: SourceContext, scope: Function, value: Expression) -> tuple[str, bool]:
    """The one string that an expression can be, and whether it is sure to be that one; '' for none."""
    possible = context.resolver.evaluate(scope, value)
    found = list(possible.values)
    if isinstance(value, Name):
        owner = context.resolver.owner(scope, value.dotted)
        for caller, passed in context.resolver.passed(owner, value.dotted) if owner is not None else ():
            found.extend(context.resolver.evaluate(caller, passed).values)
        if "." in value.dotted and not found:
            # `args` is a parameter, but the parser stands in this file.
            found.extend(context.resolver.argparse_default(value.dotted.rpartition(".")[2]).values)
        if all(isinstance(item, Symbol) for item in found):  # what is imported, or nothing
            found = list(known_values(context, scope, value.dotted)) or found
    distinct = list(dict.fromkeys(item for item in found if isinstance(item, str)))
    if len(distinct) == 1 and len(distinct) == len(set(map(repr, found))):
        return distinct[0], possible.complete
    return "", False


def _family(context: SourceContext, shown: str, name: str, node_id: int) -> Built | str | None:
    last = name.rpartition("/")[2].rpartition(".")[2]
    if _NOT_FAMILIES.search(name):
        return NOT
    return Built(shown, 0, context, node_id) if _FAMILIES.search(last) else None
