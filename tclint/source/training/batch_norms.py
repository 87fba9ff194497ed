"""Which batch norm a model of a script holds, and whether the script treats its norms apart."""

from __future__ import annotations

import re
from typing import NamedTuple

from tclint.core.finding import Location
from tclint.source.context import SourceContext
from tclint.source.names.queries import inner_model, keyword, makers, words
from tclint.source.syntax.tables import (
    Call,
    CallEvent,
    Discard,
    Expression,
    Function,
    Literal,
    Name,
    Return,
    dotted,
)
from tclint.source.training.training_casts import MASTER_WEIGHTS

_NORMS = words(
    "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d"
)
_LIBRARY = re.compile(
    r"resnet\d+|resnext\d+_|wide_resnet\d|densenet\d|mobilenet_?v[23]|efficientnet_|regnet_?[xy]|shufflenet_v2"
    r"|mnasnet\d|inception_v3|googlenet|vgg\d+_bn|seresnet\d|ghostnet"
)
"""Beginnings of names of torchvision's and timm's models that hold batch norms by default."""
_KEPT = re.compile(
    r"keep_b(atch)?_?n|b(atch)?_?n(orm)?_?(convert|to)_?(float|fp32)|network_to_half|convert_network|fp16_?util"
    r"|frozenb(atch)?_?n|^_?batchnorm$"
)
"""Identifiers, in lower case, of programs that treat their batch norms apart."""
_MAYBE = words("if else except case loop_else")
_HOLDING = (b"BatchNorm", b"import")
_DEPTH = 12
"""Names, wrappers, classes and functions followed from a model to its batch norm."""


class Norm(NamedTuple):
    """A batch norm, or the library model that holds some."""

    name: str
    location: Location


def keeps_norms(context: SourceContext) -> bool:
    """Whether the file may put some parts back to float32, or keeps masters of its parameters."""
    lowered = [name.lower() for name in context.tables.identifiers]
    if any(_KEPT.search(name) or MASTER_WEIGHTS.search(name) for name in lowered):
        return True
    for function in context.tables.functions:
        discarded = {event.node_id for event in function.events if isinstance(event, Discard)}
        for event in function.events:
            if isinstance(event, Return) and function.kind == "lambda" and isinstance(event.value, Call):
                discarded.add(event.value.node_id)
            if not isinstance(event, CallEvent):
                continue
            if dotted(event.call.function) == "isinstance" and any(
                "Norm" in str(argument.value) for argument in event.call.arguments
            ):
                return True
        for event in function.events:
            # A tensor's .float() thrown away does nothing, so this is a module's.
            if (
                isinstance(event, CallEvent)
                and event.call.node_id in discarded
                and context.casts.dtype_of(function, event.call) == "float32"
            ):
                return True
    return False


def replaces_norms(context: SourceContext, model: str) -> bool:
    """`model.bn1 = nn.Identity()`, or `setattr`, which may do the same."""
    if "setattr" in context.tables.identifiers:
        return True
    return any(
        target.startswith(f"{model}.") and re.search(r"bn|norm", target.rpartition(".")[2].lower())
        for function, event in context.tables.assignments
        for target in event.targets
    )


def norm_of(context: SourceContext, scope: Function, value: Expression, depth: int = _DEPTH) -> Norm | None:
    """A batch norm that a model has, whichever way it is made; None where it may have none."""
    if depth <= 0:
        return None
    if isinstance(value, Name):
        name = value.dotted
        found = []
        for function, made in context.resolver.origins_of(scope, name):
            if _root(made) == name and function is scope:
                continue  # model = model.half()
            found.append(norm_of(context, function, made, depth - 1))
        return found[0] if found and None not in found else None
    if not isinstance(value, Call):
        return None
    direct = _norm_made_by(context, scope, value, depth)
    inner = inner_model(value)
    return norm_of(context, scope, inner, depth - 1) if direct is None and inner is not None else direct


def _norm_made_by(context: SourceContext, scope: Function, call: Call, depth: int) -> Norm | None:
    """A batch norm that one call is sure to make."""
    if depth <= 0:
        return None
    for qualified in context.resolver.called(scope, call):
        head, _, last = qualified.rpartition(".")
        if qualified.startswith("torch.nn."):
            if last in _NORMS:
                return Norm(last, context.location(call.node_id))
            if last in ("Sequential", "ModuleList"):
                return _among(context, scope, call, depth)
            return None
        name = ""
        if head.startswith("torchvision.models"):
            name = last
        elif qualified in ("timm.create_model", "timm.models.create_model"):
            given = keyword(call, "model_name", 0)
            possible = context.resolver.evaluate(scope, given) if given is not None else None
            name = str(possible.values[0]) if possible is not None and possible.certain else ""
        if name:
            fits = _LIBRARY.match(name) and keyword(call, "norm_layer") is None
            return Norm(name, context.location(call.node_id)) if fits else None
    for where, definition in context.definitions_of(scope, call.function, _HOLDING):
        found = _norm_in(where, definition, depth - 1)
        if found is not None:
            return found
    return None


def _among(context: SourceContext, scope: Function, call: Call, depth: int) -> Norm | None:
    for argument in call.arguments:
        if isinstance(argument.value, Call):
            found = _norm_made_by(context, scope, argument.value, depth - 1)
            if found is not None:
                return found
    return None


def _norm_in(context: SourceContext, function: Function, depth: int) -> Norm | None:
    """A batch norm that a class's constructor or a function makes on every path."""
    if depth <= 0:
        return None
    if function.kind == "class":
        members = {member.name: member for member in context.values.members(function)}
        if members.keys() & {"half", "to", "_apply", "bfloat16"}:
            return None
        if "__init__" in members:
            return _norm_in(context, members["__init__"], depth)
        outer = context.tables.functions[function.parent]
        for base in function.bases:
            found = _norm_made_by(context, outer, Call(base, (), function.node_id), depth - 1)
            if found is not None:
                return found
        return None
    if function.kind != "function":
        return None
    if function.name != "__init__" and not any(
        isinstance(event, Return) and not event.is_yield for event in function.events
    ):
        return None
    for event in function.calls:
        around = {function.blocks[block].kind for block in function.enclosing(event.block)}
        if around & _MAYBE:
            continue
        found = _norm_made_by(context, function, event.call, depth - 1)
        if found is not None and not _is_thrown_away(function, event.call):
            return found
    return None


def _is_thrown_away(function: Function, call: Call) -> bool:
    return any(isinstance(event, Discard) and event.node_id == call.node_id for event in function.events)


def _root(value: Expression) -> str:
    """`model` of `model.to(device).half()`, and of `DDP(model)`."""
    calls = list(makers(value))
    return dotted((inner_model(calls[-1]) if calls else value) or Literal(None))
