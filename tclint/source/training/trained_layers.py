"""Which layers a program trains, as far as its files show."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.layers.convolutional import Models
from tclint.source.layers.library_models import Built, library_model
from tclint.source.names.queries import Called, has_star, keyword, makers
from tclint.source.syntax.tables import Call, CallEvent, Function, dotted, method_of

_ATTENTION = (
    "torch.nn.MultiheadAttention",
    "torch.nn.Transformer",
    "torch.nn.TransformerEncoder",
    "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoder",
    "torch.nn.TransformerDecoderLayer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
)
_SMALL_FEATURES = 256
"""A matrix product whose sides are all smaller runs in a few microseconds whatever its precision."""
_SMALL_CHANNELS = 64
_FEWEST_ELSEWHERE = 2
"""Calls that make convolutions in other files, below which none of them is asked for a model."""
_ELSEWHERE = {"Conv2d": 1, "conv2d": 1, "Conv1d": 1, "Conv3d": 1, "MultiheadAttention": 1, "Linear": 3}
"""Layer -> calls in the files that run with this one, from which on it is taken to be trained."""
_CLASSES_FOLLOWED = 60
"""Classes of a model that is made of others."""
_CALLS_FOLLOWED = 2_000
_NO_MODEL = re.compile(r"Collator|Config|Output|Processor|Tokenizer|Trainer|Extractor")
_CONVOLUTIONAL = re.compile(r"ResNet|ConvN|RegNet|EfficientNet|MobileNet|PoolFormer|MobileViT|Bit(Model|For)")
"""In names of classes of transformers: cuDNN runs their convolutions in TF32 by default."""
_CONVOLUTIONS = ("Conv2d", "ConvTranspose2d", "Conv3d", "ConvTranspose3d")


def trained_layers(context: SourceContext) -> str:
    """What of the layers that mixed precision speeds up the program trains; '' where little is seen, or only
    small layers."""
    found = matmul_layers(context)
    if found:
        return found
    own = [(where, layer) for where, layer in _layers(context) if "Conv" in layer.qualified]
    if own:
        sizes = _sizes(own, "in_channels", "out_channels")
        large = not sizes or max(sizes) >= _SMALL_CHANNELS
        return own[0][1].qualified.rpartition(".")[2] if large else ""
    if _layers(context):
        return ""
    name = convolutions(context)
    if name:
        return name
    for word, fewest in _ELSEWHERE.items():
        if context.neighbours.count((f"{word}(",), around=True) >= fewest:
            return word
    return ""


def _layers(context: SourceContext) -> list[tuple[SourceContext, Called]]:
    """Layers of torch.nn that the file makes, without losses and what wraps whole models."""
    return _trainable((context, layer) for layer in context.values.all_layers())


def _trainable(layers: Iterable[tuple[SourceContext, Called]]) -> list[tuple[SourceContext, Called]]:
    return [
        (where, layer)
        for where, layer in layers
        if not layer.qualified.endswith(("Loss", "DataParallel")) and ".utils." not in layer.qualified
    ]


def _layers_elsewhere(context: SourceContext) -> list[tuple[SourceContext, Called]]:
    """The same of the project's classes whose objects the file trains, with their files."""
    models = Models(context)
    for training in context.program.trainings:
        for event in training.function.calls:
            name = dotted(event.call.function)
            if name and not context.resolver.qualified(training.function, name):
                deque(models.made(training.function, name), maxlen=0)
    pending = [item for item in models.classes if item[0].values.is_module_class(item[1])]
    classes: dict[tuple[str, int], tuple[SourceContext, Function]] = {}
    while pending and len(classes) < _CLASSES_FOLLOWED:
        where, made = pending.pop()
        if made.kind != "class" or (where.path, made.index) in classes:
            continue
        classes[where.path, made.index] = where, made
        for member in where.values.members(made):
            for event in member.calls:
                if method_of(event.call)[1][:1].isupper():
                    pending += where.definitions_of(member, event.call.function)
    return _trainable(
        (where, layer) for where, made in classes.values() for layer in where.values.layers(made, 1)
    )


def _mostly_linear(
    layers: list[tuple[SourceContext, Called]],
) -> list[tuple[SourceContext, Called]]:
    """The linear layers, where there are two and more than twice as many as convolutions; else none."""
    linears = [(where, layer) for where, layer in layers if layer.qualified == "torch.nn.Linear"]
    convolutions = sum("Conv" in layer.qualified for _, layer in layers)
    return linears if len(linears) >= max(2, 2 * convolutions) else []


def _sizes(layers: Iterable[tuple[SourceContext, Called]], *names: str) -> list[int]:
    """The sizes of layers that are known, by the names of their first two parameters."""
    return [
        value
        for where, layer in layers
        for position, name in enumerate(names)
        if (size := keyword(layer.call, name, position)) is not None and not has_star(layer.call)
        for value in where.values_across(layer.function, size)
        if isinstance(value, int)
    ]


class Parts(NamedTuple):
    """What a model consists of, as far as the files show."""

    layers: str
    """Those that mixed precision speeds up; '' where little is seen, or only small ones."""
    products: str
    """Those of them whose matrix products need TF32 switched on."""
    checkpoints: tuple[tuple[SourceContext, Function, Call], ...]
    """Calls that load a model of transformers: file, function, call."""


def trained_parts(context: SourceContext) -> Parts:
    """What a program with a loop of its own trains."""
    loaded = [
        (context, function, event.call)
        for function, event, _ in context.program.methods("from_pretrained", "from_config")
        if _of_transformers(context, function, event.call)
    ]
    return Parts(trained_layers(context), matmul_layers(context), tuple(loaded))


def parts_of_model(context: SourceContext, function: Function, call: Call) -> Parts:
    """What a model consists of that a call makes: its class, what that makes, and what it is given."""
    pending: list[tuple[SourceContext, Function, Call]] = [(context, function, call)]
    seen: set[tuple[str, int]] = set()
    layers: list[tuple[SourceContext, Called]] = []
    loaded: list[tuple[SourceContext, Function, Call]] = []
    libraries: list[str] = []
    transformers: list[str] = []
    while pending and len(seen) < _CALLS_FOLLOWED:
        where, scope, whole = pending.pop()
        for made in makers(whole):
            if (where.path, made.node_id) in seen:
                continue
            seen.add((where.path, made.node_id))
            name = _of_transformers(where, scope, made)
            if name:
                transformers.append(name)
                if method_of(made)[1].startswith("from_"):
                    loaded.append((where, scope, made))
                continue
            built = library_model(where, scope, made)
            if isinstance(built, Built):
                libraries.append(built.name)
                continue
            layers += [
                (where, Called(qualified, made, scope, 0, 0))
                for qualified in where.resolver.called(scope, made)
                if qualified.startswith("torch.nn.") and qualified.rpartition(".")[2][:1].isupper()
            ]
            for other, owner in where.definitions_of(scope, made.function):
                members = [owner] if owner.kind == "function" else other.values.members(owner)
                pending += [(other, member, event.call) for member in members for event in member.calls]
            for argument in made.arguments:
                origins = where.resolver.origins_of(scope, dotted(argument.value))
                pending += [(where, inside, value) for inside, value in origins if isinstance(value, Call)]
    return _parts(_trainable(layers), libraries, transformers, tuple(loaded))


def _parts(
    layers: list[tuple[SourceContext, Called]],
    libraries: list[str],
    transformers: list[str],
    loaded: tuple[tuple[SourceContext, Function, Call], ...],
) -> Parts:
    products = next((f"`{name}`" for name in transformers if not _CONVOLUTIONAL.search(name)), "")
    attention = [item for item in layers if item[1].qualified in _ATTENTION]
    if not products and max(_sizes(attention, "d_model"), default=0) >= _SMALL_FEATURES:
        products = f"`{attention[0][1].qualified.rpartition('.')[2]}`"
    linears = _mostly_linear(layers)
    if not products and max(_sizes(linears, "in_features", "out_features"), default=0) >= _SMALL_FEATURES:
        products = f"{len(linears)} linear layers"
    convolutions = [(where, layer) for where, layer in layers if "Conv" in layer.qualified]
    large = max(_sizes(convolutions, "in_channels", "out_channels"), default=0) >= _SMALL_CHANNELS
    others = [f"`{name}`" for name in (*transformers, *libraries)]
    if large:
        others.append(convolutions[0][1].qualified.rpartition(".")[2])
    return Parts(products or next(iter(others), ""), products, loaded)


def matmul_layers(context: SourceContext) -> str:
    """What of linear and attention layers the program trains; '' when little or nothing is seen."""
    program = context.program
    for name in _pretrained(context):
        return f"`{name}`"
    attention = program.calls(*_ATTENTION)
    if attention:
        return f"`{attention[0].qualified.rpartition('.')[2]}`"
    layers = _layers(context)
    linears = _mostly_linear(layers)
    if linears and not any("Conv" in layer.qualified for _, layer in layers):
        sizes = _sizes(linears, "in_features", "out_features")
        return f"{len(linears)} linear layers" if not sizes or max(sizes) >= _SMALL_FEATURES else ""
    if layers:
        return ""
    linears = _mostly_linear(context.once(_layers_elsewhere))
    if linears and max(_sizes(linears, "in_features", "out_features"), default=0) >= _SMALL_FEATURES:
        return f"{len(linears)} linear layers"
    for word in ("MultiheadAttention(", "scaled_dot_product_attention(", "TransformerEncoder("):
        if context.neighbours.count((word,), around=True):
            return f"`{word[:-1]}`"
    return ""


def _pretrained(context: SourceContext) -> Iterator[str]:
    for function, event, _ in context.program.methods("from_pretrained", "from_config"):
        name = _of_transformers(context, function, event.call)
        if name:
            yield name


def _of_transformers(context: SourceContext, function: Function, call: Call) -> str:
    """`BertModel` of `BertModel.from_pretrained(...)` and of `BertModel(config)`; '' for anything else."""
    for name in context.resolver.called(function, call):
        owner, _, last = name.rpartition(".")
        owner = owner.rpartition(".")[2] if last in ("from_pretrained", "from_config") else last
        is_model = ("Model" in owner or "For" in owner) and not _NO_MODEL.search(owner)
        if name.startswith("transformers.") and is_model:
            return owner
    return ""


def convolutions(context: SourceContext) -> str:
    """A convolutional layer or network of the program, or ''."""
    program = context.program
    for layer in context.values.all_layers():
        last = layer.qualified.rpartition(".")[2]
        if last in _CONVOLUTIONS:
            return last
    for function in context.tables.functions:
        for item in function.imports:
            if item.qualified.startswith("torchvision.models"):
                return "torchvision.models"
    if "torchvision" in context.tables.identifiers:
        for _, event, _ in program.methods(
            "resnet18", "resnet34", "resnet50", "resnet101", "vgg16", "densenet121"
        ):
            return str(getattr(event.call.function, "dotted", "torchvision.models"))
    for _, event, _ in program.methods("Conv2d", "Conv3d"):
        return dotted(event.call.function)
    neighbours = context.neighbours
    if not neighbours.imported() or neighbours.count(("nn.Conv2d(",)) < _FEWEST_ELSEWHERE:
        return ""
    # What other files make counts for a network that this one only calls.
    return _made_elsewhere(context) or ("" if _defines_modules(context) else "Conv2d")


def _defines_modules(context: SourceContext) -> bool:
    return any(
        dotted(base).rpartition(".")[2] == "Module"
        for function in context.tables.functions
        if function.kind == "class"
        for base in function.bases
    )


def _made_elsewhere(context: SourceContext) -> str:
    """A convolutional network that a training function calls, by what another file says of it, or ''."""
    models = Models(context)
    for training in context.program.trainings:
        function = training.function
        for event in function.events:
            name = dotted(event.call.function) if isinstance(event, CallEvent) else ""
            if not name or context.resolver.qualified(function, name):
                continue
            for made in models.made(function, name):
                if isinstance(made, Built):
                    return made.name
    return ""
