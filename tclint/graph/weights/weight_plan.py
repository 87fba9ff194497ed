"""From sizes that change to a plan of weights."""

from __future__ import annotations

from collections.abc import Mapping

from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.dims.solver import Inconsistent
from tclint.graph.ops import Graph, Parameter
from tclint.graph.weights.axis import Layouts, Scattered, segments
from tclint.graph.weights.plan import AxisPlan, GroupPlan, ParameterShape, TensorPlan, WeightPlan


def weight_plan(dims: CoupledDims, changes: Mapping[DimGroup, int]) -> WeightPlan:
    """Where the entries of the weights that grow with these groups stand; unproved.

    Raises:
        DimsUnresolved: as `CoupledDims.resize`; or a group would shrink, or a weight cannot be laid out.
    """
    for group, size in changes.items():
        if size < group.size:
            raise DimsUnresolved(None, f"the dim of size {group.size} would shrink to {size}")
    values = dims.new_values(changes)
    layouts = Layouts(dims.index, values)
    ones = _axes_of_ones(dims.graph)
    tensors = []
    for old, new in zip(dims.graph.parameters, dims.resize(changes).parameters, strict=True):
        if old.is_persistent and old.shape != new.shape:
            tensors.append(_tensor(dims, layouts, old, new.shape, ones))
    groups = tuple(
        _group(dims, group, size, values, tensors) for group, size in changes.items() if size > group.size
    )
    parameters = tuple(
        ParameterShape(parameter.name, parameter.shape, parameter.trainable)
        for parameter in dims.graph.parameters
        if not parameter.is_buffer
    )
    return WeightPlan(tuple(tensors), groups, parameters)


def _tensor(
    dims: CoupledDims,
    layouts: Layouts,
    parameter: Parameter,
    new_shape: tuple[int, ...],
    ones: frozenset[tuple[str, int]],
) -> TensorPlan:
    axes = []
    for position, size in enumerate(dims.index.shapes.parameters[parameter.name]):
        if parameter.shape[position] == new_shape[position]:
            continue
        try:
            axis = layouts.axis(size)
        except (Scattered, Inconsistent) as error:
            raise DimsUnresolved(None, f"the weight {parameter.name}: {error}") from None
        fill = float((parameter.name, position) in ones)
        axes.append(AxisPlan(position, segments(axis), fill))
    return TensorPlan(
        name=parameter.name,
        aliases=parameter.aliases,
        is_buffer=parameter.is_buffer,
        old_shape=parameter.shape,
        new_shape=new_shape,
        axes=tuple(axes),
    )


def _group(
    dims: CoupledDims, group: DimGroup, size: int, values: Mapping[int, int], tensors: list[TensorPlan]
) -> GroupPlan:
    atoms = frozenset(int(root.id[1:]) for root in group.roots or (group,)) & values.keys()
    shapes = dims.index.shapes.parameters
    own = tuple(
        tensor.name
        for tensor in tensors
        if any(dims.index.base_atoms(shapes[tensor.name][axis.axis]) & atoms for axis in tensor.axes)
    )
    return GroupPlan(group.id, group.size, size, own)


def _axes_of_ones(graph: Graph) -> frozenset[tuple[str, int]]:
    """Axes of weights whose added entries may not be zero: variances, and directions of a weight norm."""
    found: set[tuple[str, int]] = set()
    for op in graph.ops:
        for spec, name in zip(op.inputs, op.input_names, strict=False):
            if spec.parameter is None or spec.producer is not None:
                continue
            if name == "running_var":
                found.add((spec.parameter, 0))
            elif op.name in ("_weight_norm", "_weight_norm_interface") and name == "v":
                dim = int(op.attributes.get("dim") or 0)
                found.add((spec.parameter, dim % len(spec.shape)))
    return frozenset(found)
