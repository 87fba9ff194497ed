"""What-if edits of a graph: other layers in place of some ops, for pricing only.

An edit changes what it names and leaves every neighbour as it is, so it suits changes that no other op
sees: a bias dropped, a convolution made dense, an image stored with a fourth channel. Changes of width
go through CoupledDims. The ops that an edit names are looked up by index, so that edits follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import prod

from tclint.analysis.layers import consumers, groups_of
from tclint.graph.ops import Graph, Op, TensorSpec, channels_last_strides, contiguous_strides


def with_ops(graph: Graph, changed: Mapping[int, Op]) -> Graph:
    """The graph with some ops replaced; parameters take the shapes that their new readers see."""
    ops = tuple(changed.get(op.index, op) for op in graph.ops)
    shapes: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
    dropped: set[str] = set()
    for index, op in changed.items():
        before = dict(zip(graph.ops[index].input_names, graph.ops[index].inputs, strict=True))
        after = dict(zip(op.input_names, op.inputs, strict=True))
        for name, spec in before.items():
            if spec.parameter is None:
                continue
            if name in after:
                # A tensor computed from a parameter carries its name with a shape of its own.
                shapes[spec.parameter, spec.shape] = after[name].shape
            else:
                dropped.add(spec.parameter)
    dropped -= {spec.parameter for op in ops for spec in op.inputs if spec.parameter}
    parameters = tuple(
        replace(parameter, shape=shapes.get((parameter.name, parameter.shape), parameter.shape))
        for parameter in graph.parameters
        if parameter.name not in dropped
    )
    return replace(graph, ops=ops, parameters=parameters)


def emptied(op: Op) -> Op:
    """The op turned into a view of its first input: same results, no work."""
    inputs = tuple(spec for spec in op.inputs[:1] if spec.parameter is None)
    return replace(
        op, name="view", kind="view", inputs=inputs, input_names=("self",) * len(inputs), attributes={}
    )


def resized(spec: TensorSpec, axis: int, size: int) -> TensorSpec:
    """The tensor with another size of one dim, in the same memory format."""
    shape = (*spec.shape[:axis], size, *spec.shape[axis + 1 :])
    if spec.memory_format in ("channels_last", "channels_last_3d"):
        return replace(spec, shape=shape, strides=channels_last_strides(shape))
    return replace(spec, shape=shape, strides=contiguous_strides(shape))


def with_input(op: Op, name: str, spec: TensorSpec) -> Op:
    """The op with another tensor for that argument."""
    inputs = tuple(
        spec if input_name == name else old for old, input_name in zip(op.inputs, op.input_names, strict=True)
    )
    return replace(op, inputs=inputs)


def without_bias(graph: Graph, ops: Iterable[Op]) -> Graph:
    """The layers built with bias=False."""
    changed = {}
    for op in (graph.ops[op.index] for op in ops):
        kept = [(spec, name) for spec, name in zip(op.inputs, op.input_names, strict=True) if name != "bias"]
        changed[op.index] = replace(
            op, inputs=tuple(spec for spec, _ in kept), input_names=tuple(name for _, name in kept)
        )
    return with_ops(graph, changed)


def cast_by_hand(graph: Graph, ops: Iterable[Op]) -> Graph:
    """The ops in the autocast dtype, where autocast leaves them as they are."""
    return with_ops(
        graph,
        {
            op.index: replace(op, cast_by_hand=True, in_place=False)
            for op in (graph.ops[o.index] for o in ops)
        },
    )


def ungrouped(graph: Graph, ops: Iterable[Op]) -> Graph:
    """The convolutions with groups=1 and otherwise the same channels."""
    return _regrouped(graph, ops, lambda _: 1)


def regrouped(graph: Graph, ops: Iterable[Op], times: int) -> Graph:
    """The convolutions with `times` groups merged into one, else with groups=1, and the same channels."""
    return _regrouped(graph, ops, lambda groups: groups // times if groups % times == 0 else 1)


def _regrouped(graph: Graph, ops: Iterable[Op], groups: Callable[[int], int]) -> Graph:
    changed = {}
    for op in (graph.ops[op.index] for op in ops):
        weight = op.input("weight")
        if weight is None:
            continue
        before, after = groups_of(op), groups(groups_of(op))
        # A transposed convolution stores [C_in, C_out / groups], a forward one [C_out, C_in / groups].
        wider = with_input(op, "weight", resized(weight, 1, weight.shape[1] * before // after))
        changed[op.index] = replace(wider, attributes={**op.attributes, "groups": after})
    return with_ops(graph, changed)


def with_fused_expansion(graph: Graph, ops: Iterable[Op], *, others_too: bool = False) -> Graph:
    """Depthwise convolutions and the 1x1 convolutions that widen the image before them as one dense one.

    Norm and activation in between are removed too. A depthwise convolution that reads something else stays as
    it is, or with `others_too` becomes dense by itself.
    """
    readers = consumers(graph.ops)
    changed: dict[int, Op] = {}
    left: list[Op] = []
    for op in (graph.ops[op.index] for op in ops):
        source, weight = op.input("input"), op.input("weight")
        between = _expansion_before(graph, op, readers)
        if source is None or weight is None:
            continue
        if not between:
            left.append(op)
            continue
        image = between[-1].inputs[0]
        fused = with_input(op, "input", image)
        fused = with_input(fused, "weight", resized(weight, 1, image.shape[1]))
        changed[op.index] = replace(fused, attributes={**op.attributes, "groups": 1})
        changed |= {other.index: emptied(other) for other in between}
    graph = with_ops(graph, changed)
    return ungrouped(graph, left) if others_too else graph


def _expansion_before(graph: Graph, op: Op, readers: Mapping[int, list[Op]]) -> list[Op]:
    """The ops back to the 1x1 convolution that only this op reads; empty if there is none."""
    between: list[Op] = []
    position = op.input_names.index("input")
    producer = op.inputs[position].producer
    while producer is not None:
        before = graph.ops[producer]
        if len(readers.get(producer, ())) != 1:
            return []
        between.append(before)
        if before.kind == "conv":
            kernel = before.inputs[before.input_names.index("weight")].shape[2:]
            stride = before.attributes.get("stride", 1)
            steps = stride if isinstance(stride, list | tuple) else [stride]
            is_expansion = before.attributes.get("groups", 1) == 1 and "transpose" not in before.name
            return between if is_expansion and {*kernel, *steps} == {1} else []
        if before.kind not in ("norm", "elementwise") or not before.inputs:
            return []
        producer = before.inputs[0].producer
    return []


def with_input_channels(graph: Graph, ops: Iterable[Op], channels: int) -> Graph:
    """The (ungrouped, not transposed) convolutions reading `channels` input channels."""
    changed = {}
    for op in (graph.ops[op.index] for op in ops):
        source, weight = op.input("input"), op.input("weight")
        if source is None or weight is None:
            continue
        wider = with_input(op, "input", resized(source, 1, channels))
        changed[op.index] = with_input(wider, "weight", resized(weight, 1, channels))
    return with_ops(graph, changed)


def with_head_dim(graph: Graph, ops: Iterable[Op], head_dim: int) -> Graph | None:
    """The fused attentions with heads of size `head_dim`; None if their width is not a multiple of it.

    Tensors keep their number of elements, [B, heads, S, D] becoming [B, heads * D / head_dim, S, head_dim],
    so that the layers around them stay as they are.
    """
    changed = {}
    for op in (graph.ops[op.index] for op in ops):
        inputs = []
        for spec, name in zip(op.inputs, op.input_names, strict=True):
            reshaped = _reheaded(spec, head_dim) if name in ("query", "key", "value") else spec
            if reshaped is None:
                return None
            inputs.append(reshaped)
        output = _reheaded(op.outputs[0], head_dim)
        if output is None:
            return None
        changed[op.index] = replace(op, inputs=tuple(inputs), outputs=(output, *op.outputs[1:]))
    return with_ops(graph, changed)


def _reheaded(spec: TensorSpec, head_dim: int) -> TensorSpec | None:
    if len(spec.shape) != 4:
        return None
    batch, heads, length, present = spec.shape
    if heads * present % head_dim:
        return None
    shape = (batch, heads * present // head_dim, length, head_dim)
    return replace(spec, shape=shape, strides=contiguous_strides(shape))


def with_linear_patches(graph: Graph, ops: Iterable[Op]) -> Graph | None:
    """Convolutions that cut an image into patches, and are flattened, as a copy and a linear layer.

    The copy of the patches takes the convolution's place, and the linear layer that of the view after it.
    None if something else reads a convolution.
    """
    readers = consumers(graph.ops)
    changed: dict[int, Op] = {}
    for op in (graph.ops[op.index] for op in ops):
        source, weight, following = op.input("input"), op.input("weight"), readers.get(op.index, [])
        if source is None or weight is None or len(following) != 1 or following[0].kind != "view":
            return None
        batch, width, *grid = op.outputs[0].shape
        count, taps = prod(grid), prod(weight.shape[1:])
        if following[0].outputs[0].shape != (batch, width, count) or not source.numel:
            return None
        shape, result = (batch, count, taps), (batch, count, width)
        patches = replace(source, shape=shape, strides=contiguous_strides(shape))
        flat = replace(weight, shape=(width, taps), strides=contiguous_strides((width, taps)))
        bias = op.input("bias")
        changed[op.index] = replace(
            op,
            name="clone",
            kind="copy",
            inputs=(source,),
            input_names=("self",),
            outputs=(patches,),
            attributes={},
        )
        output = replace(following[0].outputs[0], shape=result, strides=contiguous_strides(result))
        changed[following[0].index] = replace(
            op,
            index=following[0].index,
            name="linear",
            kind="linear",
            inputs=(replace(patches, producer=op.index), flat, *((bias,) if bias is not None else ())),
            input_names=("input", "weight", "bias")[: 2 + (bias is not None)],
            outputs=(output,),
            attributes={},
        )
    return with_ops(graph, changed)
