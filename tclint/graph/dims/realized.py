"""Which sizes another trace of a model has: the same ops between other shapes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from tclint.graph.dims.coupled import CoupledDims
from tclint.graph.dims.index import DimGroup, DimsUnresolved
from tclint.graph.ops.graph import Graph
from tclint.graph.ops.op import Op

_SETTINGS = (
    *("stride", "padding", "dilation", "kernel_size", "groups", "num_groups", "num_heads", "num_layers"),
    *("dim", "dim0", "dim1", "dims", "index", "step", "padding_idx", "ord", "negative_slope"),
    *("eps", "momentum", "p", "dropout", "dropout_p"),
)
"""Attributes of operators that are no sizes: another one makes another model."""
_FACTORS = ("other", "scale", "value", "alpha")
"""Numbers that models compute with, some of them made of sizes: sqrt(width), say."""


def realized_sizes(dims: CoupledDims, other: Graph) -> dict[DimGroup, int] | None:
    """The size of every group of `dims` in another graph, where that is the same model at other sizes.

    None where it has other parameters or ops, or where no sizes of the groups give all of its shapes.
    """
    found = _sizes(dims, other)
    if found is None:
        return None
    changed = {group: size for group, size in found.items() if size != group.size}
    if any(group.fixed for group in changed):
        return None
    try:
        predicted = dims.resize(changed) if changed else dims.graph
    except DimsUnresolved:
        return None
    return found if difference(predicted, other) is None else None


def sizes_of_weights(dims: CoupledDims, other: Graph) -> dict[DimGroup, int]:
    """The groups that change, and their sizes, by the shapes of another graph's weights.

    Its ops may be others in part: outputs that are cut back, say. Those that are the same tell which factor
    of a product changes.

    Raises:
        DimsUnresolved: no sizes of the groups give these shapes.
    """
    theirs = {parameter.name: parameter.shape for parameter in other.parameters}
    found: dict[DimGroup, int] = {}
    for parameter in dims.graph.parameters:
        shape = theirs.get(parameter.name)
        if shape is None or len(shape) != len(parameter.shape):
            raise DimsUnresolved(None, f"the other model has no such {parameter.name}")
        for axis, size in enumerate(shape):
            _note_change(found, dims.group_of_parameter(parameter.name, axis), size)
    factors = {root for group in found if group.composite for root in group.roots}
    for ours, op in _common(dims.graph, other) if factors else ():
        for position, (mine, spec) in enumerate(zip(ours.outputs, op.outputs, strict=False)):
            for axis, size in enumerate(spec.shape if len(mine.shape) == len(spec.shape) else ()):
                group = dims.group_of_output(ours.index, position, axis)
                if group in factors:
                    _note_change(found, group, size)
    changes = dims.sized(dims.new_values(found))
    for parameter in dims.resize(changes).parameters:
        name, shape = parameter.name, theirs[parameter.name]
        if parameter.shape != shape:
            raise DimsUnresolved(None, f"{name} would have the shape {parameter.shape}, and has {shape}")
    return {group: size for group, size in changes.items() if group.parameters}


def _note_change(found: dict[DimGroup, int], group: DimGroup | None, size: int) -> None:
    if group is not None and group.size != size:
        found.setdefault(group, size)


def _common(one: Graph, other: Graph) -> Iterator[tuple[Op, Op]]:
    """The ops that both have at their start, and at their end."""
    pairs = zip(one.ops, other.ops, strict=False)
    first = list(takewhile(lambda pair: pair[0].name == pair[1].name, pairs))
    yield from first
    rest = zip(reversed(one.ops[len(first) :]), reversed(other.ops[len(first) :]), strict=False)
    yield from takewhile(lambda pair: pair[0].name == pair[1].name, rest)


def _sizes(dims: CoupledDims, other: Graph) -> dict[DimGroup, int] | None:
    graph = dims.graph
    shapes = {parameter.name: parameter.shape for parameter in other.parameters}
    if shapes.keys() != {parameter.name for parameter in graph.parameters} or len(graph.ops) != len(
        other.ops
    ):
        return None
    found: dict[DimGroup, int] = {}

    def note(group: DimGroup | None, size: int) -> bool:
        if group is None or group.composite or (group.fixed and group.size == size):
            return True
        return found.setdefault(group, size) == size

    for parameter in graph.parameters:
        shape = shapes[parameter.name]
        if len(shape) != len(parameter.shape):
            return None
        for axis, size in enumerate(shape):
            if not note(dims.group_of_parameter(parameter.name, axis), size):
                return None
    for ours, theirs in zip(graph.ops, other.ops, strict=True):
        if ours.name != theirs.name or len(ours.outputs) != len(theirs.outputs):
            return None
        for position, (mine, spec) in enumerate(zip(ours.outputs, theirs.outputs, strict=True)):
            if len(mine.shape) != len(spec.shape):
                return None
            for axis, size in enumerate(spec.shape):
                if not note(dims.group_of_output(ours.index, position, axis), size):
                    return None
    return found


def difference(predicted: Graph, traced: Graph) -> str | None:
    """The first op or parameter with another shape in the second graph of one model; None: there is none."""
    theirs = {parameter.name: parameter.shape for parameter in traced.parameters}
    for parameter in predicted.parameters:
        shape = theirs.get(parameter.name)
        if shape != parameter.shape:
            return f"{parameter.name} has the shape {shape}, not {parameter.shape}"
    if [op.name for op in predicted.ops] != [op.name for op in traced.ops]:
        return "other operators run"
    for mine, op in zip(predicted.ops, traced.ops, strict=True):
        for kind, ours, others in (
            ("reads", mine.inputs, op.inputs),
            ("makes", mine.outputs, op.outputs),
        ):
            if [spec.shape for spec in ours] != [spec.shape for spec in others]:
                shapes = ", ".join(str(spec.shape) for spec in others)
                return f"{op.name} in {op.module_path or 'the model'} {kind} {shapes}"
        setting = other_setting(mine, op)
        if setting is not None:
            return f"{op.name} in {op.module_path or 'the model'} has another {setting}"
    return None


def other_setting(predicted: Op, traced: Op) -> str | None:
    """The attribute by which an op is another one, whatever the sizes; None: there is none."""
    ours, theirs = predicted.attributes, traced.attributes
    return next((name for name in _SETTINGS if ours.get(name) != theirs.get(name)), None)


def changed_factors(predicted: Graph, traced: Graph) -> Iterator[tuple[Op, float, float]]:
    """Ops of one model that compute with another number in the second graph: it was made of a size."""
    for mine, op in zip(predicted.ops, traced.ops, strict=True):
        for name in _FACTORS:
            old, new = mine.attributes.get(name), op.attributes.get(name)
            if isinstance(old, int | float) and isinstance(new, int | float) and old != new:
                yield op, old, new
