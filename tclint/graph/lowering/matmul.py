"""Matrix products: linear, matmul and the mm family, forward, dgrad and wgrad.

How torch maps a product onto one library call (fold into 2-D, or batch) follows `_matmul_impl` and
`should_fold` of aten/src/ATen/native/LinearAlgebra.cpp and `linear` of aten/src/ATen/native/Linear.cpp;
in which order backward multiplies follows `mm_mat1_grad`, `mm_mat2_grad` of
torch/csrc/autograd/FunctionsManual.cpp and bmm's entry in tools/autograd/derivatives.yaml.
"""

from __future__ import annotations

from math import prod

from tclint.graph.lowering.kernels import (
    Lowering,
    LoweringRule,
    NoFormulaError,
    collapsible,
    dense_bytes,
    gemm,
    row_contiguous,
)
from tclint.graph.ops.spec import TensorSpec, contiguous_strides


def _strides(spec: TensorSpec) -> tuple[int, ...]:
    return contiguous_strides(spec.shape) if spec.strides is None else spec.strides


def gradient_role(spec: TensorSpec) -> str:
    """'wgrad' for the gradient of a parameter, 'dgrad' for that of an activation."""
    return "wgrad" if spec.parameter is not None else "dgrad"


def product(
    low: Lowering,
    a: int,
    b: int,
    sizes: tuple[int, int, int],
    layout: str,
    *,
    batch: int = 1,
    repeats: int = 1,
    b_is_transposed: bool | None = None,
) -> None:
    """C[M,N] = A[M,K] B[K,N] and the gradients that inputs `a` and `b` need.

    Args:
        sizes: (M, N, K).
        layout: contiguous dim of A ('m' or 'k') and of B ('n' or 'k'); C is row-major, as torch makes it.
        b_is_transposed: whether B is stored as [N,K], where its layout alone does not say it (K or N of 1).
    """
    m, n, k = sizes
    if not batch * m * n * k:
        return
    a_spec, b_spec = low.op.inputs[a], low.op.inputs[b]
    a_dim, b_dim = layout[0], layout[1]
    dtype = a_spec.dtype
    low.run(gemm(m, n, k, dtype, batch, layout=f"{a_dim}{b_dim}n", repeats=repeats))
    if low.needed(a):
        # dA[M,K] = dC[M,N] B^T[N,K]; 2-D gradients keep the layout of what they belong to.
        c_dim = "m" if a_dim == "m" and batch == 1 and k > 1 else "n"
        work = gemm(m, k, n, dtype, batch, layout=f"k{'n' if b_dim == 'k' else 'k'}{c_dim}", repeats=repeats)
        low.run_backward(work, gradient_role(a_spec))
        _sum_broadcast(low, a_spec, batch * repeats * m * k)
    if low.needed(b):
        if batch == 1 and (b_dim == "k" if b_is_transposed is None else b_is_transposed):
            # dB^T[N,K] = dC^T[N,M] A[M,K], stored as the weight is.
            work = gemm(n, k, m, dtype, layout=f"m{'n' if a_dim == 'k' else 'k'}n", repeats=repeats)
        else:
            # dB[K,N] = A^T[K,M] dC[M,N]
            work = gemm(k, n, m, dtype, batch, layout=f"{'m' if a_dim == 'k' else 'k'}nn", repeats=repeats)
        low.run_backward(work, gradient_role(b_spec))
        _sum_broadcast(low, b_spec, batch * repeats * k * n)


def _sum_broadcast(low: Lowering, spec: TensorSpec, computed: int) -> None:
    """A gradient computed per batch entry of an operand that was broadcast is summed over the batch."""
    if spec.numel < computed:
        itemsize = dense_bytes(spec) // max(spec.numel, 1)
        low.traffic(
            "reduction",
            computed * itemsize,
            dense_bytes(spec),
            operation="sum",
            dtype=spec.dtype,
            backward=True,
        )


def matrix_vector(low: Lowering, a: int, b: int, sizes: tuple[int, int], *, a_dim: str = "k") -> None:
    """y[M] = A[M,K] x[K]; dA is an outer product, which is memory-bound, dx a product again."""
    m, k = sizes
    a_spec, b_spec = low.op.inputs[a], low.op.inputs[b]
    if not m * k:
        return
    low.run(gemm(m, 1, k, a_spec.dtype, layout=f"{a_dim}kn"))
    if low.needed(a):
        size = dense_bytes(a_spec) // max(a_spec.numel, 1)
        low.traffic("elementwise", (m + k) * size, m * k * size, operation="outer", backward=True)
    if low.needed(b):
        low.run_backward(
            gemm(k, 1, m, a_spec.dtype, layout=f"{'m' if a_dim == 'k' else 'k'}kn"), gradient_role(b_spec)
        )


def _rows_view(spec: TensorSpec) -> tuple[bool, int, int, int, int]:
    """A tensor as rows x last dim: (viewable without a copy, rows, columns, row stride, column stride)."""
    shape, strides = spec.shape, _strides(spec)
    rows, columns = prod(shape[:-1]), shape[-1]
    row_stride = next(
        (
            stride
            for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True)
            if size != 1
        ),
        columns,
    )
    return collapsible(shape[:-1], strides[:-1]), rows, columns, row_stride, strides[-1]


def folded_dim(low: Lowering, spec: TensorSpec) -> str:
    """Contiguous dim ('k' or 'm') of a tensor used as a [rows, K] operand, copied where torch must."""
    viewable, rows, columns, row_stride, column_stride = _rows_view(spec)
    last = row_contiguous(rows, columns, row_stride, column_stride) if viewable else None
    if last is None:
        low.copy(spec)
        return "k"
    return "k" if last else "m"


def matrix_dim(low: Lowering, spec: TensorSpec, last: str, other: str) -> str:
    """Contiguous dim of the last two dims of a tensor, copied where neither is contiguous."""
    strides = _strides(spec)
    contiguous = row_contiguous(spec.shape[-2], spec.shape[-1], strides[-2], strides[-1])
    if contiguous is None:
        low.copy(spec)
        return last
    return last if contiguous else other


def linear(low: Lowering) -> None:
    """y[..., N] = x[..., K] W[N,K]^T + b."""
    x, w = low.position("input", "self"), low.position("weight")
    bias = low.find("bias")
    x_spec, w_spec = low.op.inputs[x], low.op.inputs[w]
    k = x_spec.shape[-1]
    if len(w_spec.shape) == 1:
        matrix_vector(low, x, w, (prod(x_spec.shape[:-1]), k))
        return
    n = w_spec.shape[0]
    b_dim = matrix_dim(low, w_spec, "k", "n")
    viewable = collapsible(x_spec.shape[:-1], _strides(x_spec)[:-1])
    fused_bias = viewable and (len(x_spec.shape) <= 2 or x_spec.memory_format == "contiguous")
    if viewable or low.requires_grad(w):
        a_dim = folded_dim(low, x_spec)
        transposed = w_spec.memory_format == "contiguous"
        product(low, x, w, (prod(x_spec.shape[:-1]), n, k), a_dim + b_dim, b_is_transposed=transposed)
    else:
        # For a weight that requires no gradient torch copies no x: it runs bmm on the expanded weight.
        a_dim = matrix_dim(low, x_spec, "k", "m")
        product(low, x, w, (x_spec.shape[-2], n, k), a_dim + b_dim, batch=prod(x_spec.shape[:-2]))
    if bias is not None:
        if not fused_bias:
            y = low.output
            low.traffic("elementwise", dense_bytes(y), dense_bytes(y), operation="add")
        low.bias_gradient(bias, low.output)


def matmul(low: Lowering) -> None:
    """torch.matmul of any ranks: dot, mv, one folded mm, or a batched product with broadcasting."""
    if len(low.op.inputs) < 2:
        raise NoFormulaError("a product was recorded without two operands")
    a, b = 0, 1
    a_shape, b_shape = low.op.inputs[a].shape, low.op.inputs[b].shape
    if len(a_shape) == 1 and len(b_shape) == 1:
        dot(low)
    elif len(b_shape) == 1:
        a_dim = folded_dim(low, low.op.inputs[a])
        matrix_vector(low, a, b, (prod(a_shape[:-1]), a_shape[-1]), a_dim=a_dim)
    elif len(a_shape) == 1 and len(b_shape) == 2:
        b_dim = matrix_dim(low, low.op.inputs[b], "n", "k")
        product(low, a, b, (1, b_shape[1], a_shape[0]), "k" + b_dim)
    elif len(a_shape) <= 2 and len(b_shape) >= 3:
        _left_small(low, a, b)
    elif len(a_shape) >= 3 and len(b_shape) == 2:
        _right_small(low, a, b)
    else:
        batched(low, a, b)


def _right_small(low: Lowering, a: int, b: int) -> None:
    a_spec, b_spec = low.op.inputs[a], low.op.inputs[b]
    k, n = b_spec.shape
    if low.requires_grad(b) or collapsible(a_spec.shape[:-1], _strides(a_spec)[:-1]):
        a_dim = folded_dim(low, a_spec)
        b_dim = matrix_dim(low, b_spec, "n", "k")
        rows, columns = _strides(b_spec)
        transposed = rows == 1 and columns == k  # mm_mat2_grad's own test
        product(low, a, b, (prod(a_spec.shape[:-1]), n, k), a_dim + b_dim, b_is_transposed=transposed)
    else:
        batched(low, a, b)


def _left_small(low: Lowering, a: int, b: int) -> None:
    """[M,K] @ [..., K,N]: folded as [...*N, K] @ [K,M] where the small operand requires a gradient."""
    a_spec, b_spec = low.op.inputs[a], low.op.inputs[b]
    if len(a_spec.shape) == 1:
        low.copy(b_spec)
        matrix_vector(low, b, a, (b_spec.numel // max(b_spec.shape[-2], 1), b_spec.shape[-2]))
        return
    if not low.requires_grad(a):
        batched(low, a, b)
        return
    m, k = a_spec.shape
    low.copy(b_spec)  # its transpose has no 2-D view
    a_last = row_contiguous(m, k, *_strides(a_spec))
    product(low, b, a, (b_spec.numel // max(k, 1), m, k), "kn" if a_last is False else "kk")


def batched(low: Lowering, a: int, b: int) -> None:
    a_spec, b_spec = low.op.inputs[a], low.op.inputs[b]
    m, k = a_spec.shape[-2:] if len(a_spec.shape) > 1 else (1, a_spec.shape[0])
    n = b_spec.shape[-1]
    # An output of rank 1 less belongs to a vector operand, whose batch dims are all of the output's.
    batch = low.output.numel // max(m * n, 1)
    batch_shape = low.output.shape[: -2 if len(a_spec.shape) > 1 else -1]
    dims = []
    for spec, last, other in ((a_spec, "k", "m"), (b_spec, "n", "k")):
        if len(spec.shape) < 2:
            dims.append("k")
        elif expands_to_view(spec, batch_shape):
            dims.append(matrix_dim(low, spec, last, other))
        else:
            size = dense_bytes(spec) // max(spec.numel, 1)
            rows, columns = spec.shape[-2:]
            low.traffic(
                "copy", spec.bytes, batch * rows * columns * size, operation="expand_copy", dtype=spec.dtype
            )
            dims.append(last)
    product(low, a, b, (m, n, k), dims[0] + dims[1], batch=batch)


def expands_to_view(spec: TensorSpec, batch_shape: tuple[int, ...]) -> bool:
    """Whether the batch dims, expanded to `batch_shape`, still collapse into one without a copy."""
    own = spec.shape[:-2]
    missing = len(batch_shape) - len(own)
    strides = [0] * missing
    for size, want, stride in zip(own, batch_shape[missing:], _strides(spec)[:-2], strict=True):
        strides.append(stride if size == want else 0)
    return collapsible(batch_shape, strides)


def dot(low: Lowering) -> None:
    """x[K] . y[K]: a reduction that no Tensor Core does; each gradient is the other one scaled."""
    x, y = low.op.inputs[:2]
    low.traffic("reduction", x.bytes + y.bytes, dense_bytes(low.output), flops=2 * x.numel)
    for position, (spec, other) in enumerate(((x, y), (y, x))):
        if low.needed(position):
            low.traffic("elementwise", other.bytes, dense_bytes(spec), operation="mul", backward=True)


def add_product(low: Lowering) -> None:
    """addmm, addmv, addbmm, baddbmm: beta * input + alpha * (batch1 @ batch2)."""
    bias, a, b = 0, 1, 2
    if len(low.op.inputs) < 3:
        raise NoFormulaError(f"{low.op.name} was recorded without its three operands")
    bias_spec, a_spec, b_spec = (low.op.inputs[position] for position in (bias, a, b))
    out = low.output
    # A row vector is added in the epilogue of the product; anything else is first copied to the output,
    # which the product then accumulates into. With beta = 0 it is not read at all.
    if low.attribute("beta", 1) != 0 and not (len(bias_spec.shape) == 1 and len(out.shape) == 2):
        low.traffic("copy", bias_spec.bytes, dense_bytes(out), operation="copy_")
    if len(b_spec.shape) == 1:
        last = row_contiguous(*a_spec.shape, *_strides(a_spec))
        matrix_vector(low, a, b, (a_spec.shape[0], a_spec.shape[1]), a_dim="m" if last is False else "k")
    else:
        m, k = a_spec.shape[-2:]
        batch = a_spec.shape[0] if len(a_spec.shape) == 3 else 1
        layout = matrix_dim(low, a_spec, "k", "m") + matrix_dim(low, b_spec, "n", "k")
        if low.op.name == "addbmm":  # one product after the other, all into the same output
            product(low, a, b, (m, b_spec.shape[-1], k), layout, repeats=batch)
        else:
            product(low, a, b, (m, b_spec.shape[-1], k), layout, batch=batch)
    if bias_spec.numel < out.numel:
        low.bias_gradient(bias, out)


def plain(low: Lowering) -> None:
    """mm, bmm and the products of quantised operands: two operands of the same rank, no broadcasting."""
    a_spec, b_spec = low.op.inputs[:2]
    if len(b_spec.shape) == 1:
        matmul(low)
        return
    layout = matrix_dim(low, a_spec, "k", "m") + matrix_dim(low, b_spec, "n", "k")
    batch = a_spec.shape[0] if len(a_spec.shape) == 3 else 1
    product(low, 0, 1, (a_spec.shape[-2], b_spec.shape[-1], a_spec.shape[-1]), layout, batch=batch)


RULES: dict[str, LoweringRule] = {
    "linear": linear,
    **dict.fromkeys(("matmul", "linalg_matmul"), matmul),
    **dict.fromkeys(("mm", "bmm", "mv", "_scaled_mm", "_int_mm"), plain),
    **dict.fromkeys(("dot", "vdot", "linalg_vecdot"), dot),
    **dict.fromkeys(("addmm", "addmv", "addbmm", "baddbmm", "_addmm_activation"), add_product),
}
