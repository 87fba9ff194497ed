"""From sizes that change to a plan of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.ops.graph import Parameter
from tclint.graph.weights.analysis import Outcome, analyse
from tclint.graph.weights.axis import Axis
from tclint.graph.weights.plan import AxisPlan, Edit, GroupPlan, ParameterShape, TensorPlan, WeightPlan


def weight_plan(dims: CoupledDims, changes: Mapping[DimGroup, int]) -> WeightPlan:
    """The weights that grow with these groups, and whether the padded model computes the same.

    What is said of a group holds if those of all groups are made together.

    Raises:
        DimsUnresolved: as `CoupledDims.resize`; or a group would shrink.
    """
    for group, size in changes.items():
        if size < group.size:
            raise DimsUnresolved(None, f"the dim of size {group.size} would shrink to {size}")
    values = dims.new_values(changes)
    resized = dims.resize(changes)
    outcome = analyse(dims.index, values, resized)
    shapes = {parameter.name: parameter.shape for parameter in resized.parameters}
    tensors = tuple(
        _tensor(parameter, shapes[parameter.name], outcome.weights[parameter.name])
        for parameter in dims.graph.parameters
        if parameter.name in outcome.weights and parameter.is_persistent
    )
    groups = tuple(
        _group(group, size, values, outcome) for group, size in changes.items() if size > group.size
    )
    parameters = tuple(
        ParameterShape(parameter.name, parameter.shape, parameter.trainable)
        for parameter in dims.graph.parameters
        if not parameter.is_buffer
    )
    return WeightPlan(tensors, groups, parameters)


def _tensor(parameter: Parameter, new_shape: tuple[int, ...], axes: tuple[Axis, ...]) -> TensorPlan:
    return TensorPlan(
        name=parameter.name,
        aliases=parameter.aliases,
        is_buffer=parameter.is_buffer,
        old_shape=parameter.shape,
        new_shape=new_shape,
        axes=tuple(
            AxisPlan(position, axis.segments, 1.0 if axis.values == {"positive"} else 0.0)
            for position, axis in enumerate(axes)
            if axis.is_padded
        ),
    )


def _group(group: DimGroup, size: int, values: Mapping[int, int], outcome: Outcome) -> GroupPlan:
    atoms = frozenset(int(root.id[1:]) for root in group.roots or (group,)) & values.keys()
    tensors = tuple(
        name for name, axes in outcome.weights.items() if any(axis.groups & atoms for axis in axes)
    )
    broken = next((found for found in outcome.breaks if found.groups & atoms), None)
    if broken is not None:
        site = None if broken.op is None else broken.op.call_site or broken.op.construct_site
        return GroupPlan(
            group.id, group.size, size, "inexact",
            reason=broken.text,
            path=None if site is None else site.path,
            line=None if site is None else site.line,
            tensors=tensors,
        )  # fmt: skip
    edits = _distinct(edit for edit, groups in outcome.edits if groups & atoms)
    verdict = "exact_with" if edits else "exact"
    return GroupPlan(group.id, group.size, size, verdict, edits, tensors=tensors)  # type: ignore[arg-type]


def _distinct(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    return tuple(dict.fromkeys(edits))
