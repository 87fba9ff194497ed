"""Steps as torch.compile runs them: fused casts, padded products, layouts of convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cost_support import GraphBuilder, linear

from tclint.cost.estimate import Estimate, estimate
from tclint.cost.scenario import Scenario
from tclint.cost.transforms.compiled import padded_gemm, turns_channels_last
from tclint.graph.lowering.work import Convolution, Gemm
from tclint.graph.ops import Graph
from tclint.graph.ops.op import Checkpoint


def normed_projections(count: int, rows: int = 4096, width: int = 512) -> Graph:
    """A layer norm, which autocast runs in fp32, read by linear layers, which cast it down one by one."""
    build = GraphBuilder()
    x = build.linear(build.input(rows, width), width, "first")
    norm = build.parameter("norm.weight", width)
    normed = build.op("layer_norm", "norm", {"input": x, "weight": norm}, rows, width)
    return build.graph(*(build.linear(normed, width, f"projection{i}") for i in range(count)))


def both(graph: Graph, mode: Any = "train", precision: Any = "fp16") -> tuple[Estimate, Estimate]:
    eager, compiled = (estimate(graph, Scenario("a100", precision, mode, compiled=c)) for c in (False, True))
    return eager, compiled


def moved(found: Estimate, op_index: int, role: str, phase: str = "forward") -> int:
    rows = [row for row in found.rows_of(op_index) if row.role == role and row.phase == phase]
    return sum(row.bytes_read + row.bytes_written for row in rows)


@pytest.mark.parametrize("count", [1, 3])
def test_a_norm_writes_the_16_bits_that_its_readers_want(count: int) -> None:
    graph = normed_projections(count)
    elements = 4096 * 512
    eager, compiled = both(graph, "infer")
    # Eager: the norm writes fp32, every reader reads that and writes fp16. Compiled: fp16 is written once.
    casts = range(2, 2 + count)
    weights = 6 * 512 * 512
    assert [moved(eager, op, "cast") - weights for op in casts] == [6 * elements] * count
    assert [moved(compiled, op, "cast") - weights for op in casts] == [2 * elements] + [0] * (count - 1)
    # The norm reads the fp16 product instead of its fp32 copy, and writes no fp32.
    assert moved(eager, 1, "cast") == 6 * elements
    assert moved(compiled, 1, "cast") == 0
    assert moved(eager, 1, "forward") - moved(compiled, 1, "forward") == (4 + 2) * elements


def test_a_norm_that_something_else_reads_is_still_written() -> None:
    graph = normed_projections(1)
    kept = replace(graph, outputs=(*graph.outputs, graph.ops[1].outputs[0]))
    elements = 4096 * 512
    once, twice = (both(g, "infer")[1] for g in (graph, kept))
    assert moved(twice, 1, "forward") - moved(once, 1, "forward") == 4 * elements


def test_casts_of_gradients_are_fused_as_well() -> None:
    eager, compiled = both(normed_projections(1))
    elements = 4096 * 512
    weights = 6 * 512 * 512
    assert moved(eager, 2, "cast", "backward") == 6 * elements + weights
    # The norm's backward reads the fp16 gradient; the weight's gradient is cast as before.
    assert moved(compiled, 2, "cast", "backward") == 2 * elements + weights
    assert compiled.backward_time_us < eager.backward_time_us


def test_fusing_never_moves_more_or_computes_less() -> None:
    for count in (1, 2, 5):
        for mode in ("train", "infer"):
            eager, compiled = both(normed_projections(count), mode)
            assert compiled.bytes_moved < eager.bytes_moved
            assert compiled.launch_count <= eager.launch_count
            assert all(row.bytes_read >= 0 and row.bytes_written >= 0 for row in compiled.rows)


# --- padding


def test_dims_of_one_are_not_padded_and_results_are_views() -> None:
    found = padded_gemm(linear(1, 1001, 512))
    assert found is not None
    product, copies = found
    assert (product.m, product.n, product.k) == (1, 1008, 512)
    # The weight is copied; the result of 1008 columns is read through a view of 1001.
    assert copies.bytes_read + copies.bytes_written == 2 * 512 * (1001 + 1008)


@pytest.mark.parametrize(("rows", "padded"), [(4096, True), (32, False)])
def test_products_that_memory_limits_are_left_as_they_are(rows: int, padded: bool) -> None:
    build = GraphBuilder()
    graph = build.graph(build.linear(build.input(rows, 1001), 2001))
    row = next(row for row in both(graph, "infer")[1].rows if isinstance(row.work, Gemm))
    assert ("padded by torch.compile" in row.tensor_core_reason) is padded


# --- layout


def convolutions(*channels: tuple[int, int], groups: int = 1, taps: int = 3) -> Graph:
    build = GraphBuilder()
    outputs = []
    for number, (before, after) in enumerate(channels):
        x = build.input(8, before, 28, 28, name=f"x{number}")
        weight = build.parameter(f"conv{number}.weight", after, before // groups, taps, taps)
        attributes = {"stride": [1], "padding": [taps // 2], "dilation": [1], "groups": groups}
        inputs = {"input": x, "weight": weight}
        outputs.append(build.op("conv2d", "conv", inputs, 8, after, 28, 28, attributes=attributes))
    return build.graph(*outputs)


@pytest.mark.parametrize(
    ("graph", "train", "infer"),
    [
        (convolutions((64, 128), (128, 128)), True, True),
        (convolutions((64, 128), (256, 128)), False, True),  # half as many channels out as in
        (convolutions((64, 128), (256, 128), taps=1), True, True),
        (convolutions((128, 128), groups=2), False, False),  # grouped
        (convolutions((128, 128), groups=128), True, True),  # depthwise
        (convolutions((64, 64), (32, 64)), False, True),  # small ones only
        (normed_projections(1), False, False),
    ],
)
def test_inductors_rules_for_layouts(graph: Graph, train: bool, infer: bool) -> None:
    assert turns_channels_last(graph, "train") is train
    assert turns_channels_last(graph, "infer") is infer


def test_a_compiled_step_has_the_layout_that_inductor_chooses() -> None:
    for graph, expected in ((convolutions((64, 128)), True), (convolutions((256, 128)), False)):
        works = [row.work for row in both(graph)[1].rows if isinstance(row.work, Convolution)]
        assert {work.channels_last for work in works} == {expected}


# --- checkpointed regions


def of_modules(graph: Graph) -> Graph:
    """Linear layers as modules of their own, which fp8 converts."""
    ops = [
        replace(op, module_path=(op.inputs[1].parameter or "").removesuffix(".weight")) for op in graph.ops
    ]
    return replace(graph, ops=tuple(ops))


def checkpointed(graph: Graph) -> Graph:
    region = Checkpoint(0, is_reentrant=True)
    return replace(graph, ops=tuple(replace(op, checkpoint=region) for op in graph.ops))


@pytest.mark.parametrize("precision", ["fp16", "fp8"])
@pytest.mark.parametrize("compiled", [False, True])
def test_what_a_region_runs_again_costs_as_much_as_its_forward(precision: Any, compiled: bool) -> None:
    graph = of_modules(normed_projections(3))
    scenario = Scenario("h100", precision, compiled=compiled)
    once, twice = (estimate(g, scenario) for g in (graph, checkpointed(graph)))
    again = [row for row in twice.rows if row.phase == "backward"]
    assert sum(row.time_us for row in again) - once.backward_time_us == pytest.approx(once.forward_time_us)
    assert twice.forward_time_us == once.forward_time_us
    dtypes = {row.work.dtype for row in again if isinstance(row.work, Gemm)}
    assert dtypes == {"float16" if precision == "fp16" else "float8_e4m3fn"}
    assert any("run again in the backward pass" in said for said in twice.assumptions)
