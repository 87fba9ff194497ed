"""Memory-bound ops: elementwise, reductions, norms, softmax, pooling, embeddings, losses.

What counts is the bytes that eager PyTorch's CUDA kernels move, forward and backward; which tensors a
backward reads follows tools/autograd/derivatives.yaml, how often a norm reads its input follows its kernel
in aten/src/ATen/native/cuda.
"""

from __future__ import annotations

from math import prod

from tclint.graph.lowering.kernels import Lowering, LoweringRule, dense_bytes, distinct_bytes
from tclint.graph.ops import Op, TensorSpec, itemsize_bytes
from tclint.graph.ops.op_tables import DERIVATIVES, PRODUCTS, QUOTIENTS, SUMS, Derivative, operators

_SCALE = Derivative("none")
_INPUT = Derivative("input")


def elementwise(low: Lowering) -> None:
    """Any pointwise op: reads its inputs once, writes its output; backward per input that needs it.

    One operation per output element counts as work, as NVIDIA's deep learning performance guide does
    (ReLU in fp16: 0.25 FLOP/B).
    """
    op = low.op
    read = distinct_bytes(op.inputs)
    written = sum(dense_bytes(spec) for spec in op.outputs)
    low.traffic("elementwise", read, written, flops=low.output.numel, walked=low.walk())
    if not low.any_needed:
        return
    if op.name in SUMS:
        _sum_backward(low)
    elif len(op.inputs) == 1:
        _unary_backward(low)
    elif op.name in PRODUCTS | QUOTIENTS:
        _product_backward(low)
    else:
        for position, need in enumerate(low.needs):
            if need:
                _gradient_of(low, position, _saved_bytes(low, position, read))


def _saved_bytes(low: Lowering, position: int, everything: int) -> int:
    """What the gradient of one of several inputs reads beside the output's gradient."""
    inputs = low.op.inputs
    if low.op.name == "where":
        return inputs[0].bytes
    if low.op.name == "masked_fill":
        return inputs[1].bytes
    if low.op.name in ("addcmul", "addcdiv"):
        return sum(spec.bytes for other, spec in enumerate(inputs) if position and other not in (0, position))
    if low.op.name == "lerp" and position < 2:
        return inputs[2].bytes if len(inputs) > 2 else 0
    return everything


def _gradient_of(low: Lowering, position: int, saved_bytes: int, extra_passes: int = 0) -> None:
    """One input's gradient: a kernel of the output's size, then a sum where the input was broadcast."""
    out = dense_bytes(low.output)
    low.traffic(
        "elementwise",
        out * (1 + extra_passes) + saved_bytes,
        out * (1 + extra_passes),
        launches=1 + extra_passes,
        backward=True,
        walked=low.walk(),
    )
    unbroadcast(low, low.op.inputs[position])


def unbroadcast(low: Lowering, spec: TensorSpec) -> None:
    """Sum of a gradient of the output's shape down to a broadcast input's shape."""
    if spec.numel < low.output.numel:
        low.traffic("reduction", dense_bytes(low.output), dense_bytes(spec), operation="sum", backward=True)


def _sum_backward(low: Lowering) -> None:
    # The gradient itself is handed on, unscaled, at no cost; the subtrahend's is negated.
    alpha = low.attribute("alpha", 1)
    for position, need in enumerate(low.needs):
        if not need:
            continue
        negated = position == (0 if low.op.name == "rsub" else 1) and low.op.name not in ("add",)
        scaled = position == (0 if low.op.name == "rsub" else 1) and alpha != 1
        if negated or scaled:
            _gradient_of(low, position, 0)
        else:
            unbroadcast(low, low.op.inputs[position])


def _product_backward(low: Lowering) -> None:
    inputs = low.op.inputs
    for position, need in enumerate(low.needs):
        if not need:
            continue
        if low.op.name in PRODUCTS:
            _gradient_of(low, position, inputs[1 - position].bytes)
        elif position == 0:
            _gradient_of(low, 0, inputs[1].bytes)
        else:  # -dy * (x / y) / y, three kernels
            _gradient_of(low, 1, inputs[0].bytes + 2 * inputs[1].bytes, extra_passes=2)


def _unary_backward(low: Lowering) -> None:
    op = low.op
    by_number = op.name in PRODUCTS | QUOTIENTS
    derivative = _SCALE if by_number else DERIVATIVES.get(op.name, _INPUT)
    if derivative.saved == "free":
        return
    # In place, the input is gone: such ops save their output.
    saved = low.output if derivative.saved == "output" or op.in_place else op.inputs[0]
    saved_bytes = 0 if derivative.saved == "none" else dense_bytes(saved)
    grad, out = dense_bytes(low.output), dense_bytes(op.inputs[0])
    passes = derivative.extra_passes
    low.traffic(
        "elementwise",
        grad + saved_bytes + passes * out,
        out * (1 + passes),
        launches=1 + passes,
        backward=True,
        walked=low.walk(),
    )


def dropout(low: Lowering) -> None:
    """Nothing in eval mode; in training writes the output and a byte of mask per element."""
    probability = low.attribute("p", low.attribute("dropout_p", 0.5))
    if not low.training or not low.attribute("train", True) or probability == 0:
        return
    x = low.op.inputs[0]
    mask = x.numel
    low.traffic("elementwise", x.bytes, dense_bytes(x) + mask)
    if low.any_needed:
        low.traffic("elementwise", dense_bytes(x) + mask, dense_bytes(x), backward=True)


def norm_shape(op: Op) -> tuple[int, int]:
    """(rows, columns): how many independent groups a norm normalises, and over how many elements each."""
    x = op.inputs[0]
    if "batch_norm" in op.name:
        rows = x.shape[1] if len(x.shape) > 1 else 1
    elif "instance_norm" in op.name:
        rows = x.shape[0] * x.shape[1]
    elif "group_norm" in op.name:
        rows = x.shape[0] * int(op.attributes.get("num_groups", op.attributes.get("group", 1)))
    elif "weight_norm" in op.name:
        axis = op.attributes.get("dim", 0)  # -1: one norm of everything
        rows = x.shape[axis] if isinstance(axis, int) and 0 <= axis < len(x.shape) else 1
    else:
        shape = op.attributes.get("normalized_shape")
        columns = prod(shape if isinstance(shape, (list, tuple)) else x.shape[-1:])
        return x.numel // max(columns, 1), columns
    return rows, x.numel // max(rows, 1)


# Per element: mean 1, variance 2, normalisation 2, scale and shift 2.
_NORM_FLOPS = 7
# Per element: maximum, subtraction, exponential, sum, division.
_SOFTMAX_FLOPS = 5


def norm(low: Lowering) -> None:
    """Batch, instance, layer, group, RMS and weight norm.

    Reads of the input in forward: layer, RMS and weight norm 1 (a row stays on the chip), batch norm 1 in
    eval mode, batch, instance and group norm 2 (statistics, then normalisation). Backward reads input and
    gradient twice (sums, then the gradient); layer norm's second time for the parameters' gradients.
    """
    name, x = low.op.name, low.op.inputs[0]
    rows, columns = norm_shape(low.op)
    size, out = x.bytes, dense_bytes(low.output)
    fixed_statistics = False
    if "batch_norm" in name:
        fixed_statistics = not (low.training and low.attribute("training", low.attribute("train", True)))
    elif "instance_norm" in name:
        fixed_statistics = not low.attribute("use_input_stats", True)
    by_row = any(kind in name for kind in ("layer_norm", "rms_norm", "weight_norm"))
    reads = 1 if fixed_statistics or by_row else 2
    low.traffic(
        "norm", reads * size, out, rows=rows, columns=columns, launches=reads, flops=_NORM_FLOPS * x.numel
    )
    if not low.any_needed:
        return
    x_needed = low.needs[0]
    parameters_needed = any(low.needs[1:])
    # Batch statistics tie a group's gradients together: its sums are needed even for the input alone.
    sums = parameters_needed or not (fixed_statistics or by_row)
    # With fixed statistics the input's gradient is the output's, scaled: the input is not read.
    input_reads = out if x_needed and fixed_statistics else (size + out if x_needed else 0)
    low.traffic(
        "norm",
        input_reads + (size + out if sums else 0),
        dense_bytes(x) if x_needed else sum(spec.bytes for spec in low.op.inputs[1:3]),
        rows=rows,
        columns=columns,
        launches=int(x_needed) + int(sums),
        backward=True,
    )


def softmax(low: Lowering) -> None:
    """softmax and log_softmax: one read and one write; backward reads the output and its gradient."""
    x, y = low.op.inputs[0], low.output
    axis = low.attribute("dim", -1)
    columns = x.shape[axis] if x.shape and isinstance(axis, int) else max(x.numel, 1)
    rows = x.numel // max(columns, 1)
    mask = sum(spec.bytes for spec in low.op.inputs[1:])
    low.traffic(
        "softmax", x.bytes + mask, dense_bytes(y), rows=rows, columns=columns, flops=_SOFTMAX_FLOPS * x.numel
    )
    if low.any_needed:
        low.traffic("softmax", 2 * dense_bytes(y), dense_bytes(x), rows=rows, columns=columns, backward=True)


def pool(low: Lowering) -> None:
    """Pooling and resampling: one read, one write; max pooling keeps int64 indices for backward."""
    x = low.op.inputs[0]
    others = sum(spec.bytes for spec in low.op.inputs[1:])
    out = dense_bytes(low.output)
    indices = sum(dense_bytes(spec) for spec in low.op.outputs[1:])
    if "max_pool" in low.op.name and not indices and low.any_needed:
        indices = 8 * low.output.numel
    low.traffic("pool", x.bytes + others, out + indices, flops=low.output.numel * _window(low))
    if low.any_needed:
        written = sum(dense_bytes(spec) for spec, need in zip(low.op.inputs, low.needs, strict=True) if need)
        low.traffic("pool", out + indices + others, written, backward=True)


def _window(low: Lowering) -> int:
    """Input elements per output element of a pooling op; adaptive ones divide the input evenly."""
    kernel = low.attribute("kernel_size")
    if kernel is None:
        return max(low.op.inputs[0].numel // max(low.output.numel, 1), 1)
    sizes = [kernel] if isinstance(kernel, int) else list(kernel)
    dims = 3 if "3d" in low.op.name else 2 if "2d" in low.op.name else 1
    return int(prod(sizes * dims if len(sizes) == 1 else sizes))


_EXPANDED = operators("memory", "expanded")
_SCANS = operators("memory", "scans")
_SELECTIONS = operators("memory", "selections")


def reduction(low: Lowering) -> None:
    """Reads its inputs, writes the result; backward by how the derivative spreads it again."""
    op = low.op
    read = distinct_bytes(op.inputs)
    written = sum(dense_bytes(spec) for spec in op.outputs)
    low.traffic("reduction", read, written, flops=sum(spec.numel for spec in op.inputs[:1]))
    if not low.any_needed or op.name in _EXPANDED:
        return
    for position, need in enumerate(low.needs):
        if not need:
            continue
        size = dense_bytes(op.inputs[position])
        if op.name in _SCANS:
            low.traffic("reduction", 3 * size, 3 * size, launches=3, backward=True)
        elif op.name in _SELECTIONS and op.inputs[position].numel > low.output.numel:
            low.traffic("scatter", 2 * dense_bytes(low.output), size, backward=True, launches=2)
        else:  # norm, var, logsumexp, prod, distances: reads what was reduced again
            low.traffic("elementwise", read + written, size, backward=True)


def loss(low: Lowering) -> None:
    """Elementwise losses: a temporary of the inputs' shape, then its mean."""
    op = low.op
    x = op.inputs[0]
    read, size = distinct_bytes(op.inputs), dense_bytes(x)
    if op.name in ("nll_loss", "nll_loss2d", "nll_loss_nd"):
        _nll(low, x.numel // max(_classes(x), 1), dense_bytes(x))
        return
    passes = 3 if op.name == "binary_cross_entropy_with_logits" else 1
    low.traffic("loss", read + passes * size, passes * size + dense_bytes(low.output), launches=1 + passes)
    for need in low.needs:
        if need:
            low.traffic("loss", read + (passes - 1) * size, passes * size, launches=passes, backward=True)


def _classes(x: TensorSpec) -> int:
    return x.shape[1] if len(x.shape) > 1 else (x.shape[0] if x.shape else 1)


def _nll(low: Lowering, rows: int, size: int) -> None:
    """The loss of log-probabilities of so many bytes."""
    itemsize = size // max(low.op.inputs[0].numel, 1)
    targets = sum(spec.bytes for spec in low.op.inputs[1:])
    low.traffic("loss", rows * itemsize + targets, dense_bytes(low.output), operation="nll_loss")
    if low.any_needed:  # zeros everywhere, one value per row
        low.traffic(
            "loss", targets, size + rows * itemsize, launches=2, operation="nll_loss_backward", backward=True
        )


def cross_entropy(low: Lowering) -> None:
    """log_softmax over the classes, then nll_loss (aten/src/ATen/native/LossNLL.cpp).

    Under autocast the first reads 16 bits and writes float32, as what follows has it.
    """
    x, dtype = low.op.inputs[0], low.output.dtype
    columns = _classes(x)
    rows = x.numel // max(columns, 1)
    size = x.numel * itemsize_bytes(dtype)
    low.traffic("softmax", x.bytes, size, operation="log_softmax", rows=rows, columns=columns, dtype=dtype)
    target = low.op.inputs[1] if len(low.op.inputs) > 1 else None
    whole = (target is not None and target.is_floating) or bool(low.attribute("label_smoothing", 0.0))
    if whole:  # class probabilities or smoothing read every class again
        low.traffic("loss", 2 * size, size, launches=2, dtype=dtype)
        if low.any_needed:
            low.traffic("loss", size, size, dtype=dtype, backward=True)
    if target is None or not target.is_floating:
        _nll(low, rows, size)
    if low.any_needed:
        low.traffic(
            "softmax",
            2 * size,
            dense_bytes(x),
            operation="log_softmax_backward",
            rows=rows,
            columns=columns,
            dtype=dtype,
            backward=True,
        )


def embedding(low: Lowering) -> None:
    """Gathers a row per index; backward writes the whole weight's gradient and adds the rows into it."""
    weight = low.position("weight")
    spec = low.op.inputs[weight]
    indices = sum(other.bytes for position, other in enumerate(low.op.inputs) if position != weight)
    index = low.find("indices", "input")
    row_bytes = dense_bytes(spec) // max(spec.shape[0], 1)
    gathered = (low.op.inputs[index].numel if index is not None else 0) * row_bytes
    out = dense_bytes(low.output)
    # Rows looked up again come from the cache.
    low.traffic("embedding", min(gathered, spec.bytes) + indices, out)
    if low.needed(weight):
        written = gathered if low.attribute("sparse", False) else dense_bytes(spec)
        low.traffic("scatter", out + indices, written, launches=2, backward=True)


RULES: dict[str, LoweringRule] = {
    **dict.fromkeys(operators("memory", "dropouts"), dropout),
    **dict.fromkeys(("embedding", "embedding_bag", "_embedding_bag"), embedding),
    "cross_entropy_loss": cross_entropy,
}
BY_KIND: dict[str, LoweringRule] = {
    "elementwise": elementwise,
    "norm": norm,
    "softmax": softmax,
    "pool": pool,
    "reduction": reduction,
    "loss": loss,
    "embedding": embedding,
}
