"""Propagation rules of elementwise ops, reductions, indexing, losses and ops that make new tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tclint.graph.dims.call import Axes, OpCall, Unmodelled, rule
from tclint.graph.dims.size import ONE, Size, product
from tclint.graph.ops.op_tables import operators

ELEMENTWISE_KINDS = frozenset({"elementwise", "softmax"})
"""Kinds of which every op without a rule of its own broadcasts its inputs."""


def elementwise(call: OpCall) -> Sequence[Axes]:
    """Every output has the broadcast shape of the inputs; an in-place op keeps its first input's."""
    joint = call.broadcast(call.inputs)
    if call.op.in_place and call.inputs:
        joint = call.inputs[0]
    return (joint,) * len(call.op.outputs)


rule(*operators("dims", "elementwise"))(elementwise)


@rule("type_as")
def _type_as(call: OpCall) -> Sequence[Axes]:
    return (call.first(),)


@rule("prelu", "_prelu_kernel")
def _prelu(call: OpCall) -> Sequence[Axes]:
    axes, weight = call.inputs[:2]
    if len(weight) == 1 and call.value(weight[0]) > 1:
        call.unify(axes[1 if len(axes) > 1 else 0], weight[0])
    return (axes,)


@rule("glu")
def _glu(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    dim = call.axis(call.integer("dim", -1), len(axes))
    axes[dim] = call.divided(axes[dim], 2)
    return (tuple(axes),)


# ------------------------------------------------------------------------------ reductions


def _reduced(axes: Axes, dims: set[int], keepdim: bool) -> Axes:
    if keepdim:
        return tuple(ONE if position in dims else axis for position, axis in enumerate(axes))
    return tuple(axis for position, axis in enumerate(axes) if position not in dims)


@rule(
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "var", "std", "var_mean", "std_mean",
    "prod", "any", "all", "logsumexp", "norm", "linalg_vector_norm", "frobenius_norm", "nanmean", "nansum",
    "median", "nanmedian", "mode", "kthvalue", "count_nonzero", "aminmax", "linalg_norm",
)  # fmt: skip
def _reduction(call: OpCall) -> Sequence[Axes]:
    if call.op.name in ("max", "min") and len(call.inputs) == 2:
        return elementwise(call)
    axes = call.first()
    given = call.op.attributes.get("dim")
    if given is None or given == []:
        dims = set(range(len(axes)))
    else:
        dims = {call.axis(dim, len(axes)) for dim in call.integers("dim")}
    keepdim = bool(call.attribute("keepdim", False))
    return (_reduced(axes, dims, keepdim),) * len(call.op.outputs)


@rule("topk")
def _topk(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    axes[call.axis(call.integer("dim", -1), len(axes))] = Size.constant(call.integer("k"))
    return (tuple(axes),) * len(call.op.outputs)


@rule("linalg_slogdet", "slogdet", "linalg_det", "det", "logdet")
def _determinant(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    call.unify(axes[-2], axes[-1])
    return (axes[:-2],) * len(call.op.outputs)


@rule("histc", "bincount")
def _histogram(call: OpCall) -> Sequence[Axes]:
    # As many bins as the call says, or as the data needs: either way not a matter of the input's size.
    return tuple(call.free_shape(spec.shape) for spec in call.op.outputs)


@rule("cosine_similarity")
def _cosine_similarity(call: OpCall) -> Sequence[Axes]:
    axes = call.broadcast(call.inputs)
    return (_reduced(axes, {call.axis(call.integer("dim", 1), len(axes))}, False),)


@rule("pairwise_distance")
def _pairwise_distance(call: OpCall) -> Sequence[Axes]:
    axes = call.broadcast(call.inputs)
    return (_reduced(axes, {len(axes) - 1}, bool(call.attribute("keepdim", False))),)


@rule("cdist")
def _cdist(call: OpCall) -> Sequence[Axes]:
    left, right = call.inputs[:2]
    call.unify(left[-1], right[-1])
    return ((*call.broadcast((left[:-2], right[:-2])), left[-2], right[-2]),)


# ------------------------------------------------------------------------------ losses

_CLASS_LOSSES = frozenset({"cross_entropy_loss", "nll_loss", "nll_loss2d", "nll_loss_nd"})


@rule(*_CLASS_LOSSES)
def _class_loss(call: OpCall) -> Sequence[Axes]:
    scores, target = call.inputs[:2]
    dim = 1 if len(scores) > 1 else 0
    per_sample = scores[:dim] + scores[dim + 1 :]
    call.unify_axes(per_sample if len(target) == len(per_sample) else scores, target)
    weight = call.optional("weight")
    if weight:
        call.unify(scores[dim], weight[0])
    reduced = call.integer("reduction", 1) != 0
    return (() if reduced else per_sample, *(() for _ in call.op.outputs[1:]))


@rule(
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div",
    "binary_cross_entropy_with_logits", "soft_margin_loss", "poisson_nll_loss",
)  # fmt: skip
def _pairwise_loss(call: OpCall) -> Sequence[Axes]:
    joint = call.broadcast(call.inputs)
    return (() if call.integer("reduction", 1) != 0 else joint,)


# ------------------------------------------------------------------------------ indexing


@rule("masked_scatter")
def _masked_scatter(call: OpCall) -> Sequence[Axes]:
    # The source only has to hold enough elements.
    return (call.broadcast((call.tensor("self"), call.tensor("mask"))),)


@rule("gather", "take_along_dim")
def _gather(call: OpCall) -> Sequence[Axes]:
    return (call.tensor("index", "indices"),)


@rule(
    "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put",
    "_unsafe_index_put", "select_scatter", "slice_scatter", "embedding_renorm",
)  # fmt: skip
def _scatter(call: OpCall) -> Sequence[Axes]:
    return (call.first(),)


@rule("index_select")
def _index_select(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    index = call.tensor("index")
    axes[call.axis(call.integer("dim"), len(axes))] = index[0] if index else ONE
    return (tuple(axes),)


@rule("index", "_unsafe_index")
def _index(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    given: dict[int, Axes] = {}
    position = 0
    names = zip(call.op.inputs[1:], call.op.input_names[1:], call.inputs[1:], strict=True)
    spans: dict[int, int] = {}
    for spec, name, index in names:
        number = int(name.partition("[")[2].rstrip("]") or 0)
        # A mask stands for as many dims as it has, all other indices for one.
        position = number + sum(span - 1 for earlier, span in spans.items() if earlier < number)
        if spec.dtype in ("bool", "uint8"):
            spans[number] = len(index)
            count = call.output_shape[position] if position < len(call.output_shape) else 1
            given[position] = (_selected(call, index, count),)
        else:
            given[position] = index
    if not given:
        raise Unmodelled("indices that are not tensors")
    joint = call.broadcast(tuple(given.values()))
    taken = {place + extra for place, number in zip(given, _numbers(call), strict=True)
             for extra in range(spans.get(number, 1))}  # fmt: skip
    first, last = min(taken), max(taken)
    kept = [(place, axis) for place, axis in enumerate(axes) if place not in taken]
    if last - first + 1 != len(taken):
        return ((*joint, *(axis for _, axis in kept)),)
    before = tuple(axis for place, axis in kept if place < first)
    return ((*before, *joint, *(axis for place, axis in kept if place > last)),)


def _numbers(call: OpCall) -> list[int]:
    return [int(name.partition("[")[2].rstrip("]") or 0) for name in call.op.input_names[1:]]


def _selected(call: OpCall, mask: Axes, count: int) -> Size:
    """How many elements a mask selects, which data decide: the share of them that the trace took."""
    every = math.prod(map(call.value, mask))
    if count == every:
        return product(mask)
    share = count / every * (1 + 1e-9)  # of what it was taken from, rounded down, it is again the count
    return call.solver.derived("scaled", product(mask), (share,), call.op.index)


@rule("masked_select", "unique_consecutive", "_unique", "_unique2")
def _data_dependent(call: OpCall) -> Sequence[Axes]:
    del call
    raise Unmodelled("how many elements it finds depends on the data")


@rule("nonzero", "nonzero_numpy", "argwhere")
def _found(call: OpCall) -> Sequence[Axes]:
    found = _selected(call, call.first(), call.output_shape[0])
    return [(found, *map(Size.constant, output.shape[1:])) for output in call.op.outputs]


@rule("where")
def _where(call: OpCall) -> Sequence[Axes]:
    return elementwise(call) if len(call.op.outputs) == 1 and len(call.inputs) > 1 else _found(call)


@rule("one_hot")
def _one_hot(call: OpCall) -> Sequence[Axes]:
    return ((*call.first(), call.free(call.output_shape[-1], "constant")),)


# ------------------------------------------------------------------------------ new tensors


@rule(
    "arange", "linspace", "zeros", "ones", "full", "empty", "empty_permuted", "empty_strided", "eye", "rand",
    "randn", "randint", "randperm", "normal", "new_zeros", "new_ones", "new_full", "new_empty",
    "new_empty_strided", "scalar_tensor", "tril_indices", "triu_indices",
)  # fmt: skip
def _new(call: OpCall) -> Sequence[Axes]:
    if call.op.name == "normal" and any(call.inputs):
        return (call.broadcast(call.inputs),)  # of a mean and deviations, not of a size
    # Its size is a number that the model's own code computed; what the tensor meets will tell of what.
    return tuple(call.free_shape(spec.shape) for spec in call.op.outputs)
