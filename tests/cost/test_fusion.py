"""What torch.compile runs in one kernel, told by the bytes that are left to move."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cost_support import GraphBuilder

from tclint.cost.estimate import Estimate, estimate
from tclint.cost.scenario import Scenario
from tclint.graph.lowering.work import Traffic
from tclint.graph.ops import Graph, TensorSpec

ROWS, WIDTH = 4096, 512
TENSOR = 4 * ROWS * WIDTH
"""Bytes of an activation."""


def priced(graph: Graph, *, compiled: bool, mode: Any = "infer", precision: Any = "fp32") -> Estimate:
    return estimate(graph, Scenario("a100", precision, mode, compiled=compiled))


def moved(found: Estimate) -> int:
    """What kernels move that compute no products."""
    rows = [row for row in found.rows if isinstance(row.work, Traffic) and row.phase == "forward"]
    return sum(row.bytes_read + row.bytes_written for row in rows)


def tensors(graph: Graph, *, mode: Any = "infer") -> tuple[float, float]:
    """How many activations are moved, eager and compiled; parameters are next to nothing."""
    return tuple(round(moved(priced(graph, compiled=c, mode=mode)) / TENSOR, 1) for c in (False, True))  # type: ignore[return-value]


class Build(GraphBuilder):
    """Builds graphs of activations of one size."""

    def point(self, name: str, *inputs: TensorSpec, shape: tuple[int, ...] = (ROWS, WIDTH)) -> TensorSpec:
        names = ("self", "other")[: len(inputs)]
        return self.op(name, "elementwise", dict(zip(names, inputs, strict=True)), *shape)

    def norm(self, x: TensorSpec) -> TensorSpec:
        return self.op(
            "layer_norm",
            "norm",
            {"input": x, "weight": self.parameter(f"norm{len(self.ops)}.weight", x.shape[-1])},
            *x.shape,
            attributes={"normalized_shape": [x.shape[-1]]},
        )

    def view(self, x: TensorSpec, *shape: int) -> TensorSpec:
        return self.op("view", "view", {"self": x}, *shape)

    def copy(self, x: TensorSpec) -> TensorSpec:
        return self.op("contiguous", "copy", {"self": x}, *x.shape)


def test_a_chain_reads_and_writes_once() -> None:
    build = Build()
    x = build.input(ROWS, WIDTH)
    last = build.point("relu", build.point("gelu", build.point("tanh", x)))
    assert tensors(build.graph(last)) == (6, 2)


def test_views_and_copies_do_not_end_it() -> None:
    build = Build()
    x = build.view(build.point("gelu", build.input(ROWS, WIDTH)), ROWS // 2, 2, WIDTH)
    last = build.point("relu", build.view(build.copy(x), ROWS, WIDTH))
    assert tensors(build.graph(last)) == (6, 2)


def test_what_is_read_twice_is_written_only_if_something_else_reads_it() -> None:
    build = Build()
    x = build.point("gelu", build.input(ROWS, WIDTH))
    both = build.point("mul", build.point("tanh", x), build.point("sigmoid", x))
    assert tensors(build.graph(both)) == (9, 2)
    assert tensors(build.graph(both, x)) == (9, 3)


def test_a_residual_and_its_norm_are_one_kernel() -> None:
    build = Build()
    stream, branch = build.input(ROWS, WIDTH, name="x"), build.input(ROWS, WIDTH, name="y")
    added = build.point("add", stream, branch)
    normed = build.norm(added)
    # Eager: two reads and a write, a read and a write. Compiled: two reads, and both results are written.
    assert tensors(build.graph(added, normed)) == (5, 4)
    assert tensors(build.graph(build.point("gelu", normed))) == (7, 3)


def test_products_lie_between() -> None:
    build = Build()
    x = build.linear(build.point("gelu", build.input(ROWS, WIDTH)), WIDTH)
    eager, compiled = tensors(build.graph(build.point("relu", x)))
    assert eager == compiled == 4


def test_a_stream_past_a_product_is_kept_in_memory() -> None:
    build = Build()
    stream = build.point("gelu", build.input(ROWS, WIDTH))
    last = build.point("add", stream, build.linear(stream, WIDTH))
    assert tensors(build.graph(last)) == (5, 5)


def test_norms_over_other_rows_are_other_kernels() -> None:
    build = Build()
    x = build.point("gelu", build.input(ROWS, WIDTH))
    same = build.norm(build.norm(x))
    assert tensors(build.graph(same)) == (6, 2)
    other = build.norm(build.view(build.norm(x), ROWS * 2, WIDTH // 2))
    assert tensors(build.graph(other))[1] == 4


@pytest.mark.parametrize(("mode", "left"), [("infer", 2), ("train", 5)])
def test_a_batch_norm_reads_its_input_from_memory_in_training(mode: Any, left: int) -> None:
    build = Build()
    images = (32, 64, 64, 16)
    x = build.point("relu", build.input(*images), shape=images)
    weight, bias = build.parameter("norm.weight", 64), build.parameter("norm.bias", 64)
    normed = build.op("batch_norm", "norm", {"input": x, "weight": weight, "bias": bias}, *images)
    last = build.point("relu", normed, shape=images)
    assert tensors(build.graph(last), mode=mode)[1] == left


def test_a_concatenation_is_written_by_what_makes_its_parts() -> None:
    build = Build()
    x, y = build.input(ROWS, WIDTH, name="x"), build.input(ROWS, WIDTH, name="y")
    parts = {"tensors[0]": build.point("gelu", x), "tensors[1]": build.point("relu", y)}
    joined = build.op("cat", "copy", parts, ROWS, 2 * WIDTH)
    assert tensors(build.graph(joined)) == (8, 4)
    build = Build()
    x = build.input(ROWS, WIDTH)
    parts = {"tensors[0]": build.linear(x, WIDTH, "a"), "tensors[1]": build.linear(x, WIDTH, "b")}
    joined = build.op("cat", "copy", parts, ROWS, 2 * WIDTH)
    assert tensors(build.graph(joined)) == (4, 4)


def convolved(activated: bool) -> Graph:
    build = Build()
    shape = (32, 64, 64, 16)
    weight, bias = build.parameter("conv.weight", 64, 64, 3, 3), build.parameter("conv.bias", 64)
    attributes = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    inputs = {"input": build.input(*shape), "weight": weight, "bias": bias}
    x = build.op("conv2d", "conv", inputs, *shape, attributes=attributes)
    return build.graph(build.point("relu", x, shape=shape) if activated else x)


def test_a_bias_is_added_where_the_result_is_read() -> None:
    assert tensors(convolved(activated=True)) == (4, 2)
    assert tensors(convolved(activated=False)) == (2, 2)


def test_a_norm_writes_its_result_as_the_product_reads_it() -> None:
    build = Build()
    x = build.norm(build.input(ROWS // 64, 64, WIDTH))
    turned = build.op("transpose", "view", {"self": x}, ROWS // 64, WIDTH, 64, strides=(64 * WIDTH, 1, WIDTH))
    sliced = build.op(
        "slice", "view", {"self": turned}, ROWS // 64, WIDTH // 2, 64, strides=(64 * WIDTH, 2, WIDTH)
    )
    eager, compiled = tensors(build.graph(build.linear(sliced, 32)))
    assert eager - compiled == 1  # half of it read, and half written


def test_gradients_inside_a_kernel_are_not_moved() -> None:
    build = Build()
    weight = build.linear(build.input(ROWS, WIDTH), WIDTH)
    graph = build.graph(build.linear(build.point("relu", build.point("gelu", weight)), WIDTH, "last"))
    eager, compiled = (priced(graph, compiled=c, mode="train") for c in (False, True))

    def backward(found: Estimate) -> int:
        rows = [r for r in found.rows if r.phase == "backward" and r.op_index in (1, 2)]
        return sum(row.bytes_read + row.bytes_written for row in rows)

    assert backward(eager) - backward(compiled) == 2 * TENSOR


@pytest.mark.parametrize("seed", range(3))
def test_fusing_never_moves_more(seed: int) -> None:
    pytest.importorskip("torch")
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from random_steps import random_step

    import tclint

    _, build, inputs, _ = random_step(seed)
    graph = tclint.trace(build, inputs)
    for mode in ("train", "infer"):
        eager, compiled = (priced(graph, compiled=c, mode=mode, precision="bf16") for c in (False, True))
        assert compiled.launch_count <= eager.launch_count
        assert all(row.bytes_read >= 0 and row.bytes_written >= 0 for row in compiled.rows)
        traffic = [
            sum(row.bytes_read + row.bytes_written for row in found.rows if isinstance(row.work, Traffic))
            for found in (eager, compiled)
        ]
        assert traffic[1] <= traffic[0]
