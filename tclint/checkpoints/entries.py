"""Which tensors of a state dict a plan speaks of, and their entries put where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.graph.weights.plan import AxisPlan, TensorPlan, WeightPlan

Shape = tuple[int, ...]


def planned_tensors(
    shapes: Mapping[str, Shape], plan: WeightPlan, *, is_part: bool = False
) -> dict[str, TensorPlan]:
    """The tensors to pad by their names in a state dict.

    Args:
        shapes: of all its tensors.
        is_part: it is one of several files, which need not hold every weight.

    Raises:
        UsageError: a weight is missing, or has another shape than the plan was made for.
    """
    found: dict[str, TensorPlan] = {}
    prefix = prefix_of(shapes, plan)
    for tensor in plan.tensors:
        names = [prefix + name for name in tensor.names if prefix + name in shapes]
        if not names and not is_part:
            raise UsageError(
                f"The checkpoint has no {printable(tensor.name)}, which the plan pads; is it of this model?"
            )
        for name in names:
            if shapes[name] == tensor.new_shape:
                raise UsageError(
                    f"{printable(name)} has the shape {_text(tensor.new_shape)} already: the checkpoint is "
                    "padded."
                )
            if shapes[name] != tensor.old_shape:
                raise UsageError(
                    f"{printable(name)} has the shape {_text(shapes[name])}, not {_text(tensor.old_shape)} "
                    "as in the plan: make the plan with the sizes that this checkpoint was trained with."
                )
            found[name] = tensor
    if not found and plan.tensors and not is_part:
        raise UsageError("The checkpoint has none of the weights that the plan pads; is it of this model?")
    return found


def prefix_of(names: Mapping[str, object], plan: WeightPlan) -> str:
    """What stands before the model's own names: 'module.' of DistributedDataParallel, for example."""
    best, most = "", 0
    for prefix in _prefixes(names, plan):
        count = sum(any(prefix + name in names for name in tensor.names) for tensor in plan.tensors)
        if count > most or (count == most and count and len(prefix) < len(best)):
            best, most = prefix, count
    return best


def _prefixes(names: Mapping[str, object], plan: WeightPlan) -> list[str]:
    found = {"": None}
    for tensor in plan.tensors[:1]:
        for own in tensor.names:
            for name in names:
                if name.endswith("." + own):
                    found[name[: -len(own)]] = None
    return list(found)


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "()"


def copy_entries(source: Any, target: Any, axes: Mapping[int, AxisPlan], *, one: Any) -> None:
    """Fill `target`, which is all zeros, with the entries of `source` and what the plan adds to them.

    Args:
        axes: the axes that grow, by their numbers in these arrays.
        one: what stands for 1.0 in the arrays' dtype.
    """
    for number, axis in axes.items():
        if axis.fill == 1.0:
            for start, end in _gaps(axis, target.shape[number]):
                target[_at(number, slice(start, end))] = one
    whole = [[(0, 0, size)] for size in source.shape]
    pieces = [
        list(axes[number].segments) if number in axes else whole[number] for number in range(len(whole))
    ]
    for chosen in product(*pieces):
        there = tuple(slice(new, new + length) for _, new, length in chosen)
        here = tuple(slice(old, old + length) for old, _, length in chosen)
        target[there] = source[here]


def _at(number: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * number, part)


def _gaps(axis: AxisPlan, size: int) -> list[tuple[int, int]]:
    """(start, end) of the entries that are added to an axis."""
    gaps, position = [], 0
    for _, new, length in axis.segments:
        gaps.append((position, new))
        position = new + length
    return [(start, end) for start, end in (*gaps, (position, size)) if start < end]
