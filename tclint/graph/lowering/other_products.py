"""Matrix products in disguise: inner and outer products, bilinear layers, distances, mixtures of experts."""

from __future__ import annotations

from math import prod

from tclint.graph.lowering.kernels import Lowering, LoweringRule, NoFormulaError, dense_bytes, gemm
from tclint.graph.lowering.matmul import batched, dot, folded_dim, matrix_dim, product


def inner(low: Lowering) -> None:
    """x[..., K] . y[..., K] over the last dims of both: one product of the two folded tensors."""
    x, y = low.op.inputs[:2]
    if not x.shape or not y.shape:
        low.traffic("elementwise", x.bytes + y.bytes, dense_bytes(low.output))
        return
    if len(x.shape) == 1 and len(y.shape) == 1:
        dot(low)
        return
    layout = folded_dim(low, x) + ("k" if folded_dim(low, y) == "k" else "n")
    product(low, 0, 1, (prod(x.shape[:-1]), prod(y.shape[:-1]), x.shape[-1]), layout)


def bilinear(low: Lowering) -> None:
    """y[b,n] = x1[b,i] W[n,i,j] x2[b,j] (+ bias): per output feature n a product x1 W[n], then a sum.

    `_trilinear` unrolls the output features (aten/src/ATen/native/Linear.cpp): N dependent products of
    [B,I] x [I,J], each followed by a multiplication with x2 and a sum over J.
    """
    x1, x2, weight = (low.position(name) for name in ("input1", "input2", "weight"))
    bias = low.find("bias")
    n, i, j = low.op.inputs[weight].shape
    rows = low.op.inputs[x1].numel // max(i, 1)
    dtype = low.op.inputs[x1].dtype
    size = dense_bytes(low.output) // max(low.output.numel, 1)
    between = rows * j * size
    low.run(gemm(rows, j, i, dtype, layout="knn", repeats=n))
    low.traffic("reduction", 2 * n * between, dense_bytes(low.output), operation="bilinear", launches=n)
    if low.needed(x1):
        low.run_backward(gemm(rows, i, j, dtype, layout="kkn", repeats=n), "dgrad")
    if low.needed(x2):
        low.run_backward(gemm(rows, j, i, dtype, layout="knn", repeats=n), "dgrad")
    if low.needed(weight):
        low.run_backward(gemm(i, j, rows, dtype, layout="mnn", repeats=n), "wgrad")
    if low.any_needed:
        low.traffic("elementwise", 2 * n * between, n * between, launches=n, backward=True)
    if bias is not None:
        low.bias_gradient(bias, low.output)


def grouped(low: Lowering) -> None:
    """Grouped product of a mixture of experts: rows of A split over G matrices B, evenly where unknown."""
    a_spec, b_spec = low.op.inputs[:2]
    if len(a_spec.shape) == 3 and len(b_spec.shape) == 3:
        batched(low, 0, 1)
        return
    if len(a_spec.shape) != 2 or len(b_spec.shape) != 3:
        raise NoFormulaError("a grouped product whose groups lie along K or N")
    groups, k, n = b_spec.shape
    rows, extra = divmod(a_spec.shape[0], max(groups, 1))
    b_dim = matrix_dim(low, b_spec, "n", "k")
    a_dim = folded_dim(low, a_spec)
    for m, batch in ((rows + 1, extra), (rows, groups - extra)):
        product(low, 0, 1, (m, n, k), a_dim + b_dim, batch=batch)


def outer(low: Lowering) -> None:
    """x[M] y[N] as a matrix: memory-bound both ways, its gradients are products with a vector."""
    x, y = low.op.inputs[-2:]
    out = dense_bytes(low.output)
    low.traffic("elementwise", sum(spec.bytes for spec in low.op.inputs), out, flops=low.output.numel)
    first = len(low.op.inputs) - 2
    for position, (own, other) in enumerate(((x, y), (y, x)), start=first):
        if low.needed(position):
            low.traffic("reduction", out + other.bytes, dense_bytes(own), backward=True)
    if first:
        low.bias_gradient(0, low.output)


def distances(low: Lowering) -> None:
    """cdist: Euclidean distances of more than 25 points are a product with two columns appended
    (`_euclidean_dist` in aten/src/ATen/native/Distance.cpp), then clamped and rooted; others a kernel."""
    x, y = low.op.inputs[:2]
    out = dense_bytes(low.output)
    (m, k), n = x.shape[-2:], y.shape[-2]
    both = x.bytes + y.bytes
    mode = low.attribute("compute_mode", 0)
    if low.attribute("p", 2) == 2 and (mode == 1 or (mode == 0 and max(m, n) > 25)) and m * n * k:
        appended = both * (k + 2) // k
        low.traffic("copy", both, appended, operation="cat", launches=2)
        low.run(gemm(m, n, k + 2, x.dtype, low.output.numel // (m * n), layout="kkn"))
        low.traffic("elementwise", 2 * out, 2 * out, operation="sqrt", launches=2)
    else:
        low.traffic("reduction", both, out, flops=3 * low.output.numel * k)
    for position, need in enumerate(low.needs):
        if need:
            spec = low.op.inputs[position]
            low.traffic("reduction", both + 2 * out, dense_bytes(spec), backward=True)


def affine_grid(low: Lowering) -> None:
    """affine_grid_generator: base points [positions, D+1] times theta^T [D+1, D] per image
    (aten/src/ATen/native/AffineGridGenerator.cpp)."""
    theta = low.position("theta")
    spec, out = low.op.inputs[theta], low.output
    batch, rows, columns = spec.shape
    positions = out.numel // max(batch * rows, 1)
    size = dense_bytes(out) // max(out.numel, 1)
    low.traffic(
        "copy", 0, positions * columns * batch * size, operation="affine_grid base", launches=rows + 1
    )
    low.run(gemm(positions, rows, columns, spec.dtype, batch, layout="kkn"))
    if low.needed(theta):
        low.run_backward(gemm(columns, rows, positions, spec.dtype, batch, layout="mnn"), "dgrad")


RULES: dict[str, LoweringRule] = {
    "affine_grid_generator": affine_grid,
    "inner": inner,
    "bilinear": bilinear,
    "cdist": distances,
    **dict.fromkeys(("outer", "ger", "addr", "kron"), outer),
    **dict.fromkeys(("_grouped_mm", "grouped_mm", "grouped_mm_fallback", "_scaled_grouped_mm"), grouped),
}
