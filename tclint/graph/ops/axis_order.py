"""Where the axes of a tensor go in operators that change their order and nothing else."""

from __future__ import annotations

from tclint.graph.ops.op import Op
from tclint.graph.ops.op_tables import operators

PERMUTES = operators("layout", "permutes")
_REVERSE = ("t", "numpy_T")
_OF_MATRICES = ("mT", "mH", "matrix_H", "adjoint")


def axis_order(op: Op) -> tuple[int, ...] | None:
    """The axis of the input that each axis of the output is, for an op of PERMUTES; None where unsaid."""
    given = op.attributes
    axes = list(range(len(op.inputs[0].shape)))
    try:
        if op.name == "permute":
            return tuple(axes[dim] for dim in given["dims"])
        if op.name in _REVERSE:
            return tuple(reversed(axes))
        if op.name in ("movedim", "moveaxis"):
            sources, targets = (
                [axes[dim] for dim in _listed(given[name])] for name in ("source", "destination")
            )
            moved = dict(zip(targets, sources, strict=True))
            others = iter(axis for axis in axes if axis not in sources)
            return tuple(moved[axis] if axis in moved else next(others) for axis in axes)
        names = ("dim0", "dim1") if "dim0" in given else ("axis0", "axis1")
        first, second = (-2, -1) if op.name in _OF_MATRICES else (given[name] for name in names)
        if axes:
            axes[first], axes[second] = axes[second], axes[first]
        return tuple(axes)
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _listed(dims: int | list[int]) -> list[int]:
    return [dims] if isinstance(dims, int) else dims
