"""Matrix products: sizes and contiguous dims per direction, for every way the operands can lie in memory."""

from __future__ import annotations

import torch
from graph_support import make_op, spec, traffic_of
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tclint
from tclint.graph.lowering.step import lower, lower_op
from tclint.graph.lowering.work import Gemm, Kernel
from tclint.graph.ops import Op, TensorSpec

sizes = st.integers(1, 64)


def products(kernels: list[Kernel]) -> dict[str, Gemm]:
    """By 'forward', 'dgrad' and 'wgrad'; one of each at most."""
    found: dict[str, Gemm] = {}
    for kernel in kernels:
        if isinstance(kernel.work, Gemm):
            assert kernel.role not in found
            found[kernel.role] = kernel.work
    return found


def contiguous(gemm: Gemm) -> str:
    return gemm.a_contiguous + gemm.b_contiguous + gemm.c_contiguous


def linear(m: int, n: int, k: int, bias: bool = False, x: TensorSpec | None = None) -> Op:
    inputs = {"input": x or spec(m, k), "weight": spec(n, k, parameter="w")}
    if bias:
        inputs["bias"] = spec(n, parameter="b")
    return make_op("linear", "linear", inputs, spec(m, n))


def test_linear_by_the_book() -> None:
    """y[M,N] = x[M,K] W[N,K]^T; dx = dy W; dW = dy^T x."""
    found = products(lower_op(linear(4, 16, 8), (True, True)))
    forward, dgrad, wgrad = found["forward"], found["dgrad"], found["wgrad"]
    assert (forward.m, forward.n, forward.k, contiguous(forward)) == (4, 16, 8, "kkn")
    assert (dgrad.m, dgrad.n, dgrad.k, contiguous(dgrad)) == (4, 8, 16, "knn")
    assert (wgrad.m, wgrad.n, wgrad.k, contiguous(wgrad)) == (16, 8, 4, "mnn")


@given(sizes, sizes, sizes)
def test_three_directions_cost_the_same(m: int, n: int, k: int) -> None:
    found = products(lower_op(linear(m, n, k), (True, True)))
    assert found["forward"].flops == found["dgrad"].flops == found["wgrad"].flops == 2 * m * n * k
    for gemm in found.values():
        assert sorted((gemm.m, gemm.n, gemm.k)) == sorted((m, n, k))


@given(sizes, sizes, sizes, st.integers(2, 5))
def test_flops_scale_with_every_dim(m: int, n: int, k: int, factor: int) -> None:
    def flops(m: int, n: int, k: int) -> int:
        return sum(kernel.flops for kernel in lower_op(linear(m, n, k), (True, True)))

    assert (
        flops(factor * m, n, k)
        == flops(m, factor * n, k)
        == flops(m, n, factor * k)
        == factor * flops(m, n, k)
    )


@given(st.booleans(), st.booleans())
def test_only_the_gradients_asked_for(input_needed: bool, weight_needed: bool) -> None:
    found = products(lower_op(linear(4, 16, 8), (input_needed, weight_needed)))
    assert ("dgrad" in found, "wgrad" in found) == (input_needed, weight_needed)


@given(st.tuples(sizes, sizes, sizes), st.booleans(), st.booleans())
def test_matmul_reads_layout_from_strides(
    shape: tuple[int, int, int], a_turned: bool, b_turned: bool
) -> None:
    """A transposed view needs no copy: its other dim is the contiguous one."""
    m, n, k = (size + 1 for size in shape)
    a = spec(m, k, strides=(1, m) if a_turned else None)
    b = spec(k, n, strides=(1, k) if b_turned else None, parameter="w")
    kernels = lower_op(make_op("matmul", "matmul", {"self": a, "other": b}, spec(m, n)), (True, True))
    forward = products(kernels)["forward"]
    assert contiguous(forward) == ("m" if a_turned else "k") + ("k" if b_turned else "n") + "n"
    assert traffic_of(kernels) == (0, 0)
    # A gradient lies as the tensor it belongs to.
    assert products(kernels)["dgrad"].c_contiguous == ("m" if a_turned else "n")
    wgrad = products(kernels)["wgrad"]
    assert (wgrad.m, wgrad.n, wgrad.k) == ((n, k, m) if b_turned else (k, n, m))


def test_vocabulary_weight_is_read_along_k_forward_and_along_n_in_dgrad() -> None:
    """Why an odd vocabulary hurts: V is contiguous in the logits and in nothing that forward reads."""
    found = products(lower_op(linear(1024, 50257, 768), (True, True)))
    assert (found["forward"].n, found["forward"].c_contiguous) == (50257, "n")
    assert (found["dgrad"].k, found["dgrad"].a_contiguous) == (50257, "k")
    assert (found["wgrad"].m, found["wgrad"].a_contiguous) == (50257, "m")


def test_attention_scores_are_batched_and_read_the_key_along_k() -> None:
    """q k^T of (batch, heads, length, head dim), the key transposed by a view."""
    q = spec(2, 4, 10, 16, producer=0)
    k = spec(2, 4, 16, 10, strides=(640, 160, 1, 16), producer=1)
    kernels = lower_op(make_op("matmul", "matmul", {"self": q, "other": k}, spec(2, 4, 10, 10)), (True, True))
    gemms = [kernel.work for kernel in kernels if isinstance(kernel.work, Gemm)]
    assert [(g.batch, g.m, g.n, g.k) for g in gemms] == [(8, 10, 10, 16), (8, 10, 16, 10), (8, 16, 10, 10)]
    assert contiguous(gemms[0]) == "kkn"
    assert {kernel.role for kernel in kernels} == {"forward", "dgrad"}


def test_input_that_cannot_be_folded_is_copied_when_the_weight_trains() -> None:
    """(batch, length, channels) seen through a transpose of (batch, channels, length)."""
    x = spec(2, 6, 8, strides=(48, 1, 6))
    op = make_op("linear", "linear", {"input": x, "weight": spec(16, 8, parameter="w")}, spec(2, 6, 16))
    training = lower_op(op, (False, True))
    assert products(training)["forward"].m == 12
    assert traffic_of(training) == (2 * 6 * 8 * 4, 2 * 6 * 8 * 4)
    inference = lower_op(op, ())
    assert (products(inference)["forward"].batch, products(inference)["forward"].a_contiguous) == (2, "m")
    assert traffic_of(inference) == (0, 0)


def test_broadcast_operand_gets_its_gradient_summed() -> None:
    a, b = spec(8, 5, 6, producer=0), spec(1, 6, 7, parameter="w")
    kernels = lower_op(make_op("matmul", "matmul", {"self": a, "other": b}, spec(8, 5, 7)), (False, True))
    read, written = traffic_of(kernels, "backward")
    assert (read, written) == (8 * 6 * 7 * 4, 6 * 7 * 4)


def test_bias_costs_a_reduction_in_backward_and_nothing_in_forward() -> None:
    kernels = lower_op(linear(4, 16, 8, bias=True), (True, True, True))
    assert traffic_of(kernels) == (0, 0)
    assert traffic_of(kernels, "backward") == (4 * 16 * 4, 16 * 4)


def test_dtype_is_the_operands() -> None:
    op = make_op(
        "mm",
        "matmul",
        {"self": spec(4, 8, dtype="bfloat16"), "mat2": spec(8, 2, dtype="bfloat16")},
        spec(4, 2, dtype="bfloat16"),
    )
    assert products(lower_op(op, ()))["forward"].dtype == "bfloat16"


def test_tokens_are_spread_evenly_over_experts() -> None:
    op = make_op("_grouped_mm", "matmul", {"self": spec(13, 8), "mat2": spec(4, 8, 6)}, spec(13, 6))
    gemms = [kernel.work for kernel in lower_op(op, ()) if isinstance(kernel.work, Gemm)]
    assert [(g.batch, g.m) for g in gemms] == [(1, 4), (3, 3)]
    assert sum(g.flops for g in gemms) == 2 * 13 * 8 * 6


def test_empty_operands_make_no_kernel() -> None:
    assert lower_op(linear(0, 16, 8), (True, True)) == []


def test_torch_folds_what_a_trainable_weight_multiplies() -> None:
    """Under no_grad too; a frozen weight is expanded and multiplied batch by batch."""
    x = torch.zeros(4, 5, 6, 8).transpose(1, 2)  # no view as rows x 8
    for frozen, product in ((False, "aten::mm"), (True, "aten::bmm")):
        layer = nn.Linear(8, 16, bias=False).requires_grad_(not frozen)
        with torch.no_grad(), torch.profiler.profile() as run:
            layer(x)
        assert product in {event.key for event in run.key_averages()}
        kernels, _ = lower(tclint.trace(layer, (x,)), "infer")
        (gemm,) = (kernel.work for kernel in kernels if isinstance(kernel.work, Gemm))
        assert (gemm.m, gemm.batch) == ((5, 24) if frozen else (120, 1))
        assert traffic_of(kernels) == ((0, 0) if frozen else (4 * x.numel(), 4 * x.numel()))
