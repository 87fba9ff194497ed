"""Recurrent layers: one product over all steps, one per step, weight gradients over all steps again."""

from __future__ import annotations

from typing import Any

import pytest
from graph_support import make_op, spec
from hypothesis import given
from hypothesis import strategies as st

from tclint.graph.lowering.step import NoFormulaError, lower_op
from tclint.graph.lowering.work import Gemm, Kernel
from tclint.graph.ops import Op

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}


def layers(
    name: str, inputs: int, hidden: int, count: int = 1, directions: int = 1, *, projection: int = 0,
    data: dict[str, Any] | None = None, batch_first: bool = False,
) -> Op:  # fmt: skip
    """A recurrent op over 5 steps of batch 3, with biases."""
    gates, state = GATES[name] * hidden, projection or hidden
    given_inputs = data or {"input": spec(*((3, 5) if batch_first else (5, 3)), inputs)}
    weights: list[tuple[int, ...]] = []
    for layer in range(count):
        below = inputs if layer == 0 else directions * state
        for _ in range(directions):
            weights += [(gates, below), (gates, state), (gates,), (gates,)]
            if projection:
                weights.append((projection, hidden))
    given_inputs = {
        **given_inputs,
        "hx[0]": spec(count * directions, 3, state),
        **{f"params[{i}]": spec(*shape, parameter=f"w{i}") for i, shape in enumerate(weights)},
    }
    attributes = {
        "has_biases": True, "num_layers": count, "dropout": 0.0, "train": True,
        "bidirectional": directions == 2, "batch_first": batch_first,
    }  # fmt: skip
    return make_op(name, "rnn", given_inputs, spec(5, 3, directions * state), attributes=attributes)


def trained(op: Op, inputs_too: bool = False) -> tuple[bool, ...]:
    return tuple(name.startswith("params") or (inputs_too and name == "input") for name in op.input_names)


def gemms(kernels: list[Kernel], phase: str) -> list[tuple[int, int, int, int]]:
    """(M, N, K, repeats), in order."""
    works = [kernel.work for kernel in kernels if kernel.phase == phase]
    return [(work.m, work.n, work.k, work.repeats) for work in works if isinstance(work, Gemm)]


def test_one_layer() -> None:
    kernels = lower_op(op := layers("lstm", 6, 10), trained(op, inputs_too=True))
    assert gemms(kernels, "forward") == [(15, 40, 6, 1), (3, 40, 10, 5)]
    assert gemms(kernels, "backward") == [(3, 10, 40, 5), (15, 6, 40, 1), (40, 6, 15, 1), (40, 10, 15, 1)]


def test_batch_first_changes_nothing() -> None:
    first, second = layers("gru", 6, 10), layers("gru", 6, 10, batch_first=True)
    assert gemms(lower_op(first, ()), "forward") == gemms(lower_op(second, ()), "forward")


def test_second_layer_reads_both_directions() -> None:
    kernels = lower_op(op := layers("gru", 6, 10, count=2, directions=2), trained(op))
    forward = gemms(kernels, "forward")
    assert forward == [(15, 30, 6, 1), (3, 30, 10, 5)] * 2 + [(15, 30, 20, 1), (3, 30, 10, 5)] * 2
    backward = gemms(kernels, "backward")
    # The model's input needs no gradient; the first layer's output does.
    assert (15, 6, 30, 1) not in backward
    assert backward.count((15, 20, 30, 1)) == 2


def test_projection() -> None:
    kernels = lower_op(op := layers("lstm", 6, 10, projection=4), trained(op))
    assert gemms(kernels, "forward") == [(15, 40, 6, 1), (3, 40, 4, 5), (3, 4, 10, 5)]
    assert gemms(kernels, "backward") == [
        (3, 10, 4, 5), (3, 4, 40, 5), (40, 6, 15, 1), (40, 4, 15, 1), (4, 10, 15, 1)
    ]  # fmt: skip


@given(st.integers(1, 40), st.integers(1, 8))
def test_packed_sequences_keep_their_flops(rows: int, steps: int) -> None:
    data = {"data": spec(rows, 6), "batch_sizes": spec(steps, dtype="int64")}
    kernels = lower_op(layers("rnn_tanh", 6, 10, data=data), ())
    assert sum(kernel.flops for kernel in kernels) == 2 * rows * 10 * (6 + 10)


def test_frozen_layer_takes_no_backward() -> None:
    op = layers("lstm", 6, 10)
    assert {kernel.phase for kernel in lower_op(op, ())} == {"forward"}


@pytest.mark.parametrize("name", ["lstm_cell", "gru_cell", "rnn_tanh_cell"])
def test_cell_is_one_step(name: str) -> None:
    gates = GATES[name.removesuffix("_cell")] * 10
    inputs = {
        "input": spec(3, 6), "hx": spec(3, 10, producer=0), "w_ih": spec(gates, 6, parameter="i"),
        "w_hh": spec(gates, 10, parameter="h"),
    }  # fmt: skip
    op = make_op(name, "rnn", inputs, spec(3, 10), index=1)
    kernels = lower_op(op, (False, True, True, True))
    assert gemms(kernels, "forward") == [(3, gates, 6, 1), (3, gates, 10, 1)]
    assert gemms(kernels, "backward") == [(3, 10, gates, 1), (gates, 6, 3, 1), (gates, 10, 3, 1)]


def test_weights_that_do_not_add_up_are_refused() -> None:
    op = layers("lstm", 6, 10)
    wrong = make_op("lstm", "rnn", dict(zip(op.input_names, op.inputs, strict=True)), op.outputs[0],
                    attributes={**op.attributes, "num_layers": 3})  # fmt: skip
    with pytest.raises(NoFormulaError, match="layers"):
        lower_op(wrong, ())
