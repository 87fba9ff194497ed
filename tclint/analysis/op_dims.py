"""The dims of a matrix op that someone chose: features, channels, hidden sizes."""

from __future__ import annotations

from dataclasses import dataclass

from tclint.graph.dims.coupled import CoupledDims, DimGroup
from tclint.graph.ops import GEMM_KINDS, Graph, Op

# Schema names of the two matrices of a product; linear's second is stored [N, K], the others' [K, N].
_OPERANDS = (
    ("input", "weight"),
    ("mat1", "mat2"),
    ("batch1", "batch2"),
    ("self", "mat2"),
    ("self", "other"),
)


@dataclass(frozen=True, slots=True)
class OpDim:
    """One dim of one op, in the layer's own words, with the dims that must change together with it."""

    op: Op
    role: str
    """'in_features', 'out_channels', 'hidden_size', 'head_dim', 'rows', 'inner', 'columns' ..."""
    size: int
    group: DimGroup | None
    """None where nothing is known about what depends on it."""


def leaf_ops(graph: Graph) -> tuple[Op, ...]:
    """Matrix ops that do work themselves; a composite with children does not."""
    parents = {op.parent for op in graph.ops if op.parent is not None}
    return tuple(op for op in graph.ops if op.kind in GEMM_KINDS and op.index not in parents)


def operand_positions(op: Op) -> tuple[int, int] | None:
    """Where the two matrices of a linear or matmul op are among its inputs."""
    for names in _OPERANDS:
        if all(name in op.input_names for name in names):
            first, second = (op.input_names.index(name) for name in names)
            return first, second
    return None


def width_dims(op: Op, dims: CoupledDims) -> tuple[OpDim, ...]:
    """The dims of the op's layer, leaving out batch and tokens; empty for ops without known operands."""
    if op.kind in ("linear", "matmul"):
        return _product_dims(op, dims)
    if op.kind == "conv":
        return _channel_dims(op, dims)
    if op.kind == "rnn":
        return _recurrent_dims(op, dims)
    return ()


def _product_dims(op: Op, dims: CoupledDims) -> tuple[OpDim, ...]:
    positions = operand_positions(op)
    if positions is None or not op.outputs:
        return ()
    first, _ = positions
    a, output = op.inputs[first], op.outputs[0]
    if len(a.shape) < 2 or not output.shape:
        return ()
    inner, columns = ("in_features", "out_features") if op.kind == "linear" else ("inner", "columns")
    return (
        OpDim(op, inner, a.shape[-1], dims.group_of_input(op.index, first, len(a.shape) - 1)),
        OpDim(op, columns, output.shape[-1], dims.group_of_output(op.index, 0, len(output.shape) - 1)),
    )


def _channel_dims(op: Op, dims: CoupledDims) -> tuple[OpDim, ...]:
    source, output = op.input("input"), op.outputs[0]
    # An unbatched input has no batch dim in front; what its channels are is then a guess.
    weight = op.input("weight")
    if source is None or weight is None or len(source.shape) != len(weight.shape):
        return ()
    position = op.input_names.index("input")
    return (
        OpDim(op, "in_channels", source.shape[1], dims.group_of_input(op.index, position, 1)),
        OpDim(op, "out_channels", output.shape[1], dims.group_of_output(op.index, 0, 1)),
    )


def _recurrent_dims(op: Op, dims: CoupledDims) -> tuple[OpDim, ...]:
    source = op.inputs[0]
    found = [
        OpDim(op, "input_size", source.shape[-1], dims.group_of_input(op.index, 0, len(source.shape) - 1))
    ]
    for name, position in zip(op.input_names, range(len(op.inputs)), strict=False):
        # weight_hh is the second parameter of every layer and direction: [gates * hidden, hidden]; a cell
        # names it.
        if name in ("params[1]", "w_hh") and len(op.inputs[position].shape) == 2:
            size = op.inputs[position].shape[1]
            found.append(OpDim(op, "hidden_size", size, dims.group_of_input(op.index, position, 1)))
    return tuple(found)


def groups_of(op: Op) -> int:
    """Groups of a convolution."""
    groups = op.attributes.get("groups", 1)
    return groups if isinstance(groups, int) else 1


def is_depthwise(op: Op) -> bool:
    """Each input channel is convolved on its own."""
    source = op.input("input")
    return op.kind == "conv" and source is not None and 1 < groups_of(op) == source.shape[1]


def convolutions(graph: Graph) -> tuple[Op, ...]:
    return tuple(op for op in graph.ops if op.kind == "conv" and op.input("weight") is not None)


def cuts_patches(op: Op) -> bool:
    """Each output position of an ungrouped convolution reads a window of its own, wider than one element."""
    weight, stride = op.input("weight"), op.attributes.get("stride")
    if weight is None or op.kind != "conv" or "transpose" in op.name or groups_of(op) != 1:
        return False
    kernel = weight.shape[2:]
    steps = tuple(stride) if isinstance(stride, list | tuple) else (stride,) * len(kernel)
    return steps == kernel and len(kernel) == 2 and max(kernel) > 1
