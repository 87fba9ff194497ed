"""Bytes that memory-bound ops move, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
from graph_support import make_graph, make_op, spec, traffic_of
from hypothesis import given
from hypothesis import strategies as st

from tclint.graph.lowering.step import NoFormulaError, forward_flops, lower, lower_op
from tclint.graph.lowering.work import Kernel, Traffic
from tclint.graph.ops import Cast, Op, Parameter

X = spec(4, 8, 16, producer=0)
SIZE = X.bytes


def unary(name: str, kind: str = "elementwise", **fields: Any) -> Op:
    return make_op(name, kind, {"self": X}, spec(4, 8, 16), index=1, **fields)


def both(op: Op, *needs: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Bytes (read, written) forward and backward, in units of X's size."""
    kernels = lower_op(op, needs or (True,) * len(op.inputs))
    forward, backward = traffic_of(kernels), traffic_of(kernels, "backward")
    return (
        (forward[0] // SIZE, forward[1] // SIZE),
        (backward[0] // SIZE, backward[1] // SIZE),
    )


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "sigmoid", "exp", "an_activation_of_tomorrow"])
def test_activation_reads_one_saved_tensor_and_the_gradient(name: str) -> None:
    assert both(unary(name)) == ((1, 1), (2, 1))


def test_a_formula_of_several_ops_costs_as_many_passes() -> None:
    """d(x^3) = dy * (3 * x^2): two passes before the product, in eager mode."""
    assert both(unary("pow")) == ((1, 1), (4, 3))


def test_negation_reads_the_gradient_alone() -> None:
    assert both(unary("neg")) == ((1, 1), (1, 1))


def binary(name: str, other: Any = None, **attributes: Any) -> Op:
    y = other or spec(4, 8, 16, producer=1)
    return make_op(
        name, "elementwise", {"self": X, "other": y}, spec(4, 8, 16), index=2, attributes=attributes
    )


def test_addition_hands_its_gradient_on_for_nothing() -> None:
    assert both(binary("add", alpha=1)) == ((2, 1), (0, 0))


def test_scaled_addition_and_subtraction_write_one_gradient() -> None:
    assert both(binary("add", alpha=2)) == ((2, 1), (1, 1))
    assert both(binary("sub", alpha=1)) == ((2, 1), (1, 1))
    assert both(binary("sub", alpha=1), True, False) == ((2, 1), (0, 0))


def test_product_reads_the_other_factor_per_gradient() -> None:
    assert both(binary("mul")) == ((2, 1), (4, 2))
    assert both(binary("mul"), True, False) == ((2, 1), (2, 1))


def test_a_tensor_given_twice_is_read_once() -> None:
    assert both(binary("mul", X), False, False) == ((1, 1), (0, 0))


def test_broadcast_input_is_read_as_it_lies_and_its_gradient_summed() -> None:
    vector = spec(16, parameter="gamma")
    kernels = lower_op(binary("mul", vector), (False, True))
    assert traffic_of(kernels) == (SIZE + 64, SIZE)
    assert traffic_of(kernels, "backward") == (2 * SIZE + SIZE, SIZE + 64)
    expanded = spec(4, 8, 16, strides=(0, 0, 1), producer=1)
    assert traffic_of(lower_op(binary("add", expanded, alpha=1), ())) == (SIZE + 64, SIZE)


def test_dropout_keeps_a_byte_of_mask_per_element_in_training_only() -> None:
    op = unary("dropout", attributes={"p": 0.1, "train": True})
    kernels = lower_op(op, (True,))
    assert traffic_of(kernels) == (SIZE, SIZE + X.numel)
    assert traffic_of(kernels, "backward") == (SIZE + X.numel, SIZE)
    assert lower_op(op, (False,), training=False) == []
    assert lower_op(unary("dropout", attributes={"p": 0.1, "train": False}), (True,)) == []
    assert lower_op(unary("dropout", attributes={"p": 0.0, "train": True}), (True,)) == []


def norm(name: str, **attributes: Any) -> Op:
    inputs = {"input": X, "weight": spec(8, parameter="w"), "bias": spec(8, parameter="b")}
    return make_op(name, "norm", inputs, spec(4, 8, 16), index=1, attributes=attributes)


def test_batch_norm_reads_twice_in_training_and_once_in_eval() -> None:
    assert both(norm("batch_norm", training=True)) == ((2, 1), (4, 1))
    assert both(norm("batch_norm", training=False), False, False, False) == ((1, 1), (0, 0))
    frozen = lower_op(norm("batch_norm", training=False), (True, False, False))
    assert traffic_of(frozen, "backward") == (SIZE, SIZE)
    inference = lower_op(norm("batch_norm", training=True), (), training=False)
    assert traffic_of(inference) == (SIZE, SIZE)


def test_layer_norm_keeps_its_row_on_chip() -> None:
    op = norm("layer_norm", normalized_shape=[8, 16])
    assert both(op) == ((1, 1), (4, 1))
    assert both(op, True, False, False) == ((1, 1), (2, 1))
    work = lower_op(op, ())[0].work
    assert isinstance(work, Traffic)
    assert (work.rows, work.columns) == (4, 128)


def test_group_norm_reads_twice() -> None:
    op = norm("group_norm", num_groups=2)
    work = lower_op(op, ())[0].work
    assert isinstance(work, Traffic)
    assert (work.bytes_read, work.rows, work.columns) == (2 * SIZE, 8, 64)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_backward_reads_output_and_gradient(name: str) -> None:
    op = unary(name, kind="softmax", attributes={"dim": 1})
    assert both(op) == ((1, 1), (2, 1))
    work = lower_op(op, ())[0].work
    assert isinstance(work, Traffic)
    assert (work.rows, work.columns) == (64, 8)


def test_max_pool_keeps_int64_indices_for_backward() -> None:
    x, y = spec(2, 4, 8, 8, producer=0), spec(2, 4, 4, 4)
    op = make_op("max_pool2d", "pool", {"self": x}, y, index=1, attributes={"kernel_size": [2, 2]})
    kernels = lower_op(op, (True,))
    assert traffic_of(kernels) == (x.bytes, y.bytes + 8 * y.numel)
    assert traffic_of(kernels, "backward") == (y.bytes + 8 * y.numel, x.bytes)
    assert traffic_of(lower_op(op, ())) == (x.bytes, y.bytes)


def test_intensities_of_nvidias_guide() -> None:
    """ReLU 0.25 and max pooling 3x3, stride 1: 2.25 FLOP/B in 16 bits (GPU Performance Background)."""
    half = spec(64, 32, 30, 30, dtype="float16")
    relu = lower_op(make_op("relu", "elementwise", {"self": half}, half), ())[0].work
    window = {"kernel_size": [3], "stride": [1], "padding": [1]}
    pool = lower_op(make_op("max_pool2d", "pool", {"self": half}, half, attributes=window), ())[0].work
    assert isinstance(relu, Traffic)
    assert isinstance(pool, Traffic)
    assert relu.flops / (relu.bytes_read + relu.bytes_written) == 0.25
    assert pool.flops / (pool.bytes_read + pool.bytes_written) == 2.25


def test_embedding_writes_the_whole_weights_gradient() -> None:
    weight, tokens = spec(1000, 16, parameter="w"), spec(2, 10, dtype="int64")
    op = make_op("embedding", "embedding", {"weight": weight, "indices": tokens}, spec(2, 10, 16))
    kernels = lower_op(op, (True, False))
    gathered = 20 * 16 * 4
    assert traffic_of(kernels) == (gathered + tokens.bytes, gathered)
    assert traffic_of(kernels, "backward") == (gathered + tokens.bytes, weight.bytes)


def test_cross_entropy_is_log_softmax_and_a_pick() -> None:
    scores, classes = spec(32, 1000, producer=0), spec(32, dtype="int64")
    op = make_op(
        "cross_entropy_loss", "loss", {"self": scores, "target": classes}, spec(), index=1,
        attributes={"label_smoothing": 0.0},
    )  # fmt: skip
    kernels = lower_op(op, (True, False))
    read, written = traffic_of(kernels)
    assert scores.bytes < read < 1.1 * scores.bytes
    assert scores.bytes <= written < 1.1 * scores.bytes
    read, written = traffic_of(kernels, "backward")
    assert 2 * scores.bytes <= read < 2.1 * scores.bytes
    assert 2 * scores.bytes <= written < 2.1 * scores.bytes


def test_views_are_free_but_the_gradient_of_a_part_is_not() -> None:
    part = make_op("select", "view", {"self": X}, spec(8, 16), index=1)
    kernels = lower_op(part, (True,))
    assert traffic_of(kernels) == (0, 0)
    assert traffic_of(kernels, "backward") == (SIZE // 4, SIZE + SIZE // 4)
    turned = make_op("transpose", "view", {"self": X}, spec(8, 4, 16, strides=(16, 128, 1)), index=1)
    assert lower_op(turned, (True,)) == []


def test_concatenation_hands_slices_of_its_gradient_on() -> None:
    op = make_op("cat", "copy", {"tensors[0]": X, "tensors[1]": spec(4, 8, 16, producer=1)}, spec(8, 8, 16))
    assert both(op) == ((2, 2), (0, 0))


def test_conversion_is_undone_in_backward_only_if_it_changed_the_dtype() -> None:
    half = make_op("_to_copy", "copy", {"self": X}, spec(4, 8, 16, dtype="float16"), index=1)
    assert traffic_of(lower_op(half, (True,)), "backward") == (SIZE // 2, SIZE)
    assert traffic_of(lower_op(unary("_to_copy", kind="copy"), (True,)), "backward") == (0, 0)


def test_factories_write_only() -> None:
    assert traffic_of(lower_op(make_op("zeros_like", "copy", {"self": X}, spec(4, 8, 16)), ())) == (0, SIZE)
    assert lower_op(make_op("empty_like", "view", {"self": X}, spec(4, 8, 16)), ()) == []


@given(
    st.sampled_from(["relu", "add", "softmax", "layer_norm", "avg_pool2d", "cat", "sum", "gather", "pow"]),
    st.integers(1, 5),
    st.sampled_from(["float16", "float32", "float64"]),
)
def test_bytes_scale_with_elements_and_with_their_size(name: str, factor: int, dtype: str) -> None:
    kinds = {"softmax": "softmax", "layer_norm": "norm", "avg_pool2d": "pool", "cat": "copy"}
    kinds |= {"sum": "reduction", "gather": "copy"}

    def total(rows: int, dtype: str) -> int:
        x = spec(rows, 16, dtype=dtype, producer=0)
        out = spec(rows, dtype=dtype) if name == "sum" else spec(rows, 16, dtype=dtype)
        op = make_op(name, kinds.get(name, "elementwise"), {"self": x}, out, index=1)
        return sum(sum(traffic_of(lower_op(op, (True,)), phase)) for phase in ("forward", "backward"))

    one = total(8, "float32")
    assert one > 0
    assert total(8 * factor, "float32") == factor * one
    assert total(8, dtype) * 4 == one * {"float16": 2, "float32": 4, "float64": 8}[dtype]


def chain(*names: str) -> list[Op]:
    ops = []
    for index, name in enumerate(names):
        source = spec(4, 16, parameter="w") if index == 0 else spec(4, 16, producer=index - 1)
        ops.append(make_op(name, "elementwise", {"self": source}, spec(4, 16), index=index))
    return ops


W = (Parameter("w", (4, 16), "float32"),)


def additions(kernels: list[Kernel]) -> list[Kernel]:
    found = [kernel for kernel in kernels if kernel.phase == "backward"]
    return [kernel for kernel in found if isinstance(kernel.work, Traffic) and kernel.work.operation == "add"]


def test_a_tensor_used_n_times_takes_n_minus_1_additions_of_gradients() -> None:
    first, second = chain("exp", "relu")
    join = make_op(
        "mul", "elementwise", {"self": spec(4, 16, producer=0), "other": spec(4, 16, producer=1)},
        spec(4, 16), index=2,
    )  # fmt: skip
    kernels, gaps = lower(make_graph(first, second, join, parameters=W), "train")
    assert not gaps
    (addition,) = additions(kernels)
    assert addition.op_index == 0
    assert isinstance(addition.work, Traffic)
    assert (addition.work.bytes_read, addition.work.bytes_written) == (2 * 256, 256)
    # It runs once both parts are there, before the gradient goes on.
    indices = [kernel.op_index for kernel in kernels if kernel.phase == "backward"]
    assert indices == sorted(indices, reverse=True)
    assert kernels[-1].op_index == 0
    assert kernels[-2] == addition


def test_tied_weight_adds_its_gradients() -> None:
    tokens, weight = spec(6, dtype="int64", input_name="x"), spec(50, 8, parameter="w")
    embed = make_op("embedding", "embedding", {"weight": weight, "indices": tokens}, spec(6, 8))
    head = make_op(
        "linear", "linear", {"input": spec(6, 8, producer=0), "weight": weight}, spec(6, 50), index=1
    )
    kernels, _ = lower(make_graph(embed, head, parameters=(Parameter("w", (50, 8), "float32"),)), "train")
    (addition,) = additions(kernels)
    assert isinstance(addition.work, Traffic)
    assert addition.work.bytes_written == weight.bytes


def test_casts_cost_bytes_both_ways() -> None:
    x, w = spec(4, 8, dtype="float16", input_name="x"), spec(16, 8, dtype="float16", parameter="w")
    casts = (Cast((4, 8), "float32", "float16"), Cast((16, 8), "float32", "float16", "w"))
    op = make_op("linear", "linear", {"input": x, "weight": w}, spec(4, 16, dtype="float16"), casts=casts)
    kernels, _ = lower(make_graph(op, parameters=(Parameter("w", (16, 8), "float32"),)), "train")
    found = [(k.phase, k.work) for k in kernels if k.role == "cast"]
    moved = [(phase, w.bytes_read, w.bytes_written) for phase, w in found if isinstance(w, Traffic)]
    # The input of the model needs no gradient, so only the weight's goes back to float32.
    assert moved == [("forward", 128, 64), ("forward", 512, 256), ("backward", 256, 512)]


def test_unknown_work_is_a_gap_and_never_silently_nothing() -> None:
    odd = [
        make_op("linalg_eigvals", "other", {"self": X}, spec(4, 8, dtype="complex64"), index=i)
        for i in (0, 1)
    ]
    kernels, gaps = lower(make_graph(*odd, chain("relu", "relu", "relu")[2]), "infer")
    assert [kernel.op_index for kernel in kernels] == [2]
    (gap,) = gaps
    assert (gap.name, gap.op_indices) == ("linalg_eigvals", (0, 1))
    assert "linalg_eigvals" in gap.reason
    with pytest.raises(NoFormulaError):
        lower_op(odd[0], ())


def test_composite_carries_no_work_of_its_own() -> None:
    x, w = spec(4, 8, producer=None, input_name="x"), spec(8, 2, parameter="w")
    whole = make_op("einsum", "matmul", {"operands[0]": x, "operands[1]": w}, spec(4, 2))
    halves = {"self": spec(1, 4, 8, input_name="x"), "mat2": spec(1, 8, 2, parameter="w")}
    part = make_op("bmm", "matmul", halves, spec(1, 4, 2), index=1, parent=0)
    graph = make_graph(whole, part, parameters=(Parameter("w", (8, 2), "float32"),))
    kernels, gaps = lower(graph, "train")
    assert not gaps
    assert {kernel.op_index for kernel in kernels} == {1}
    assert forward_flops(graph) == 2 * 4 * 8 * 2


def _traffic(op: Any, *, needed: bool) -> list[tuple[str, int]]:
    kernels = lower_op(op, (needed,) * len(op.inputs))
    return [
        (k.phase, k.work.bytes_read + k.work.bytes_written) for k in kernels if isinstance(k.work, Traffic)
    ]


def test_fourier_transforms_pass_over_the_data_once_for_each_dim() -> None:
    signal, half = spec(4, 8, 16), spec(4, 8, 9, dtype="complex64")
    real, spectrum = 4 * 8 * 16 * 4, 4 * 8 * 9 * 8
    one = make_op("fft_rfft", "other", {"self": signal}, half, attributes={"dim": -1})
    two = make_op("fft_rfft2", "other", {"self": signal}, half, attributes={"dim": [-2, -1]})
    inverse = make_op("fft_irfft", "other", {"self": half}, signal, attributes={"dim": -1})
    assert _traffic(one, needed=False) == [("forward", real + spectrum)]
    assert _traffic(two, needed=False) == [("forward", real + spectrum + 2 * spectrum)]
    # The inverse divides by its size in a kernel of its own, and so does nothing that undoes it.
    assert _traffic(inverse, needed=True) == [
        ("forward", real + spectrum),
        ("forward", 2 * real),
        ("backward", real + spectrum),
    ]


def test_a_weight_norm_reads_its_weight_once_for_each_filter() -> None:
    weight, sizes = spec(512, 256, 3), spec(512, 1, 1)
    op = make_op("_weight_norm", "norm", {"v": weight, "g": sizes}, weight, attributes={"dim": 0})
    forward, *_ = lower_op(op, (True, True))
    assert isinstance(forward.work, Traffic)
    assert (forward.work.rows, forward.work.columns) == (512, 768)
    assert forward.work.bytes_read == 512 * 768 * 4
