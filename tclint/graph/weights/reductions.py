"""Transfer rules of ops along a dim: reductions, norms, softmax, pooling, losses."""

from __future__ import annotations

from collections.abc import Sequence

from tclint.graph.weights.axis import Axis, Fill, Values
from tclint.graph.weights.products import added, contract
from tclint.graph.weights.step import Padded, Step, rule
from tclint.graph.weights.values import is_zero, plus, times


def _refuse(step: Step, tensor: Padded, dims: Sequence[int], reason: str) -> None:
    """None of these dims may have grown."""
    for dim in dims:
        if tensor.axes[dim].is_padded:
            raise step.inexact(reason, tensor.axes[dim].groups)


def _mapped(axes: Sequence[Axis], values: dict[bool, Values]) -> list[Axis]:
    """Axes with what an op makes of zeros, and of other added entries."""
    return [axis.filled(values[is_zero(axis.values)]) if axis.is_padded else axis for axis in axes]


_KEEP = {True: Fill.ZERO, False: Fill.FINITE}
_MAKE = {True: Fill.FINITE, False: Fill.FINITE}

# ------------------------------------------------------------------------------ reductions

_SUMS = frozenset({"sum", "nansum", "norm", "linalg_vector_norm", "frobenius_norm", "any", "count_nonzero"})
_MEANS = frozenset({"mean", "nanmean", "var", "std", "var_mean", "std_mean"})
_NEVER_NEGATIVE = frozenset({"norm", "linalg_vector_norm", "frobenius_norm", "var", "std"})
_SCORES = frozenset({"argmax", "argmin", "logsumexp", "max", "min", "amax", "amin"})


@rule(*_SUMS, *_MEANS, *_SCORES, "prod", "all", "median", "aminmax")
def _reduction(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    if step.name in ("max", "min") and len(step.inputs) == 2:
        raise step.inexact("no rule says what it makes of added entries")
    rank = len(tensor.axes)
    dims = step.dims("dim", rank, range(rank))
    for dim in dims:
        axis = tensor.axes[dim]
        if step.name in _SUMS:
            if not is_zero(axis.values) or (axis.is_padded and not _sums_zeros(step)):
                raise step.inexact("added entries that are not zero are summed", axis.groups)
        elif step.name in _MEANS:
            _refuse(step, tensor, [dim], f"the {step.name} over a dim that grows divides by its size")
        elif step.name in _SCORES:
            tensor = step.drop(tensor, dim, why=f"{step.name} over a dim that grows")
        else:
            _refuse(step, tensor, [dim], f"{step.name} over a dim that grows")
    keeps = bool(step.attribute("keepdim", False))
    axes = [
        Axis.kept(1) if position in dims else axis
        for position, axis in enumerate(tensor.axes)
        if keeps or position not in dims
    ]
    kept = _mapped(axes, _KEEP)
    if step.name in ("argmax", "argmin", "logsumexp", "prod", "all"):
        kept = _mapped(axes, _MAKE)
    if step.name in ("std", "std_mean"):
        kept = _mapped(axes, {True: Fill.ANY, False: Fill.ANY})  # its derivative at zero is none
    infinite = tensor.is_infinite and step.name in ("amax", "amin", "max", "min")
    signs = Fill.FINITE
    if step.name in _NEVER_NEGATIVE:
        signs = Fill.ZERO | Fill.POSITIVE
    elif step.name in ("sum", "mean", "amax", "amin"):
        signs = tensor.kept if "negative" not in tensor.kept else Fill.FINITE
    return [step.result(kept, is_infinite=infinite, kept=signs) for _ in step.old.outputs]


def _sums_zeros(step: Step) -> bool:
    """Whether zeros add nothing: of norms, to those of positive order."""
    order = step.old.attributes.get("ord", step.old.attributes.get("p"))
    return order is None or order == "fro" or (isinstance(order, (int, float)) and 1 <= order < float("inf"))


@rule("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
def _scan(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    if tensor.axes:
        _refuse(step, tensor, step.dims("dim", len(tensor.axes)), "it runs along a dim that grows")
    return step.results(_mapped(tensor.axes, _KEEP if step.name == "cumsum" else _MAKE))


@rule("cosine_similarity")
def _cosine_similarity(step: Step) -> Sequence[Padded]:
    left, right = step.inputs[:2]
    dim = step.dims("dim", len(left.axes), [1])[0]
    if len(left.axes) != len(right.axes) or left.is_infinite or right.is_infinite:
        raise step.inexact("no rule says what it makes of added entries")
    if not (is_zero(left.axes[dim].values) and is_zero(right.axes[dim].values)):
        raise step.inexact("added entries that are not zero are summed", left.groups | right.groups)
    labels = [f"a{position}" for position in range(len(left.axes))]
    kept = [label for position, label in enumerate(labels) if position != dim]
    return [contract(step, [(left, labels), (right, labels)], kept)]


@rule("topk", "sort", "argsort", "kthvalue")
def _ranked(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    dim = step.dims("dim", len(tensor.axes), [len(tensor.axes) - 1])[0]
    tensor = step.drop(tensor, dim, why=f"{step.name} of a dim that grows")
    axes = list(tensor.axes)
    if step.name == "kthvalue":
        raise step.inexact("no rule says what it makes of added entries")
    axes[dim] = Axis.kept(step.old.outputs[0].shape[dim])
    return step.results(_mapped(axes, _MAKE), is_infinite=tensor.is_infinite)


# ------------------------------------------------------------------------------ softmax


@rule("softmax", "_softmax", "log_softmax", "_log_softmax", "softmin")
def _softmax(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    if not tensor.axes:
        return [tensor]
    dim = step.dims("dim", len(tensor.axes), [len(tensor.axes) - 1])[0]
    tensor = step.drop(tensor, dim, why="softmax over a dim that grows")
    if any("not finite" in axis.values for axis in tensor.axes):
        return step.results(tensor.axes)
    positive = Fill.POSITIVE | Fill.ZERO if step.name in ("softmax", "_softmax") else Fill.FINITE
    return step.results(_mapped(tensor.axes, {True: positive, False: positive}), kept=positive)


# ------------------------------------------------------------------------------ norms


@rule("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def _layer_norm(step: Step) -> Sequence[Padded]:
    tensor = step.tensor("input")
    count = len(step.attribute("normalized_shape", ()))
    first = len(tensor.axes) - count
    name = "RMS norm" if "rms" in step.name else "layer norm"
    _refuse(step, tensor, range(first, len(tensor.axes)), f"{name} over a dim that grows divides by its size")
    result = step.result(_mapped(tensor.axes, _KEEP))
    weight, bias = step.optional("weight"), step.optional("bias")
    if weight is not None:
        _refuse(step, weight, range(len(weight.axes)), f"{name} over a dim that grows divides by its size")
    if bias is not None:
        result = added(step, result, bias)
    ones = (Axis.kept(1),) * count
    return [result, *(step.result((*result.axes[:first], *ones)) for _ in step.old.outputs[1:])]


@rule("group_norm", "native_group_norm")
def _group_norm(step: Step) -> Sequence[Padded]:
    tensor = step.tensor("input")
    _refuse(
        step, tensor, range(1, len(tensor.axes)), "group norm over channels that grow divides by their number"
    )
    axes = _mapped(tensor.axes, _MAKE)
    groups = int(step.attribute("num_groups", step.attribute("group", 1)))
    statistics = (axes[0], Axis.kept(groups))
    return [step.result(axes), *(step.result(statistics) for _ in step.old.outputs[1:])]


@rule("batch_norm", "native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit",
      "_native_batch_norm_legit_no_training", "instance_norm")  # fmt: skip
def _channel_norm(step: Step) -> Sequence[Padded]:
    """(x - mean) / sqrt(var + eps) * weight + bias, per channel."""
    tensor = step.tensor("input")
    others = [position for position in range(len(tensor.axes)) if position != 1]
    if step.name != "instance_norm":
        # In evaluation the statistics are stored ones; where there are none, they are over these dims.
        _refuse(step, tensor, others, f"{step.name} over a dim that grows")
    else:
        _refuse(step, tensor, others[1:], f"{step.name} over a dim that grows")
    channels = tensor.axes[1]
    per_channel = {}
    for name in ("weight", "bias", "running_mean", "running_var"):
        given = step.optional(name)
        if given is not None and given.axes:
            per_channel[name] = given.axes[0]
            channels = step.meet(channels, given.axes[0])
    if channels.is_padded:
        values = tensor.axes[1].values
        if "running_mean" in per_channel:
            values = plus(values, per_channel["running_mean"].values)
        elif not is_zero(values):
            values = Fill.FINITE
        variance = per_channel.get("running_var")
        if variance is not None and not variance.values <= Fill.POSITIVE and not step.attribute("eps", 0):
            values = Fill.ANY
        if "weight" in per_channel:
            values = times(values, per_channel["weight"].values)
        if "bias" in per_channel:
            values = plus(values, per_channel["bias"].values)
        channels = channels.filled(values)
    axes = [*_mapped(tensor.axes[:1], _MAKE), channels, *tensor.axes[2:]]
    extra = [step.result((channels,) if out.shape and out.shape[0] == channels.old_size else ())
             for out in step.old.outputs[1:]]  # fmt: skip
    return [step.result(axes), *extra]


@rule("_weight_norm", "_weight_norm_interface")
def _weight_norm(step: Step) -> Sequence[Padded]:
    """magnitude * direction / |direction|; an added row must have a direction, or it is 0 / 0."""
    direction, magnitude = step.inputs[:2]
    dim = int(step.attribute("dim", 0))
    dim = dim + len(direction.axes) if dim < 0 else dim
    axes = list(direction.axes)
    for position, axis in enumerate(axes):
        if axis.is_padded and position != dim and not is_zero(axis.values):
            raise step.inexact("added entries that are not zero are part of a weight's norm", axis.groups)
    if axes[dim].is_padded:
        if not axes[dim].values <= Fill.POSITIVE:
            raise step.inexact("an added row has no direction", axes[dim].groups)
        rows = step.meet(axes[dim], magnitude.axes[dim if len(magnitude.axes) > 1 else 0])
        own = magnitude.axes[dim if len(magnitude.axes) > 1 else 0]
        axes[dim] = rows.filled(Fill.ZERO if is_zero(own.values) else Fill.FINITE)
    return [step.result(axes), *(step.result(magnitude.axes) for _ in step.old.outputs[1:])]


# ------------------------------------------------------------------------------ pooling, resampling


@rule(
    "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d",
)  # fmt: skip
def _spatial(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    digits = [letter for letter in step.name if letter.isdigit()]
    rank = int(digits[-1]) if digits else len(tensor.axes) - 2
    first = len(tensor.axes) - rank
    if any(old != new for old, new in step.shape()[first:]):
        raise step.inexact(f"{step.name} over a dim that grows")
    _refuse(step, tensor, range(first, len(tensor.axes)), f"{step.name} over a dim that grows")
    spatial = [Axis.kept(old) for old, _ in step.shape()[first:]]
    axes = [*_mapped(tensor.axes[:first], _KEEP), *spatial]
    return step.results(axes)


@rule("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(step: Step) -> Sequence[Padded]:
    tensor, grid = step.inputs[:2]
    _refuse(step, tensor, [0, *range(2, len(tensor.axes))], "its image grows")
    _refuse(step, grid, range(len(grid.axes)), "its grid grows")
    return [step.result((*_mapped(tensor.axes[:2], _KEEP), *grid.axes[1:-1]))]


# ------------------------------------------------------------------------------ losses


@rule("cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d")
def _class_loss(step: Step) -> Sequence[Padded]:
    scores = step.inputs[0]
    scores = step.drop(scores, 1 if len(scores.axes) > 1 else 0, why="the loss sums over classes that grow")
    if scores.is_padded or any(tensor.is_padded for tensor in step.inputs[1:]):
        raise step.inexact("the loss is taken over a dim that grows")
    return [step.result([Axis.kept(size) for size in out.shape]) for out in step.old.outputs]
