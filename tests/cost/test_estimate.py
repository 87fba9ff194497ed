"""Whole steps: totals, shares, gaps, scenarios, speed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cost_support import GraphBuilder, linear

from tclint.core.errors import UsageError
from tclint.cost.estimate import estimate
from tclint.cost.gaps import with_flops
from tclint.cost.gpu import all_gpus
from tclint.cost.optimizer import optimizer_kernels, optimizers
from tclint.cost.scenario import Scenario
from tclint.cost.transforms.compiled import padded_gemm
from tclint.graph.lowering.work import Gap, Gemm, Traffic
from tclint.graph.ops import Graph


def mlp(width: int = 1024, depth: int = 4, classes: int = 1000, batch: int = 512) -> Graph:
    build = GraphBuilder()
    x = build.input(batch, width)
    for index in range(depth):
        x = build.linear(x, width, f"fc{index}")
        x = build.op("gelu", "elementwise", {"self": x}, batch, width)
    return build.graph(build.linear(x, classes, "head"))


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_totals_are_the_sum_of_the_rows(mode: str, precision: str) -> None:
    found = estimate(mlp(), Scenario("a100", precision, mode))  # type: ignore[arg-type]
    assert found.step_time_us == pytest.approx(sum(row.time_us for row in found.rows))
    parts = found.forward_time_us + found.backward_time_us + found.optimizer_time_us
    assert parts == pytest.approx(found.step_time_us)
    assert found.flops == sum(row.flops for row in found.rows)
    every_op = {row.op_index for row in found.rows}
    assert found.time_of_us(every_op) == pytest.approx(found.step_time_us)
    assert sum(row.time_us for i in every_op for row in found.rows_of(i)) == pytest.approx(found.step_time_us)
    assert found.gaps == ()
    if mode == "infer":
        assert found.backward_time_us == found.optimizer_time_us == 0


def test_shares_follow_from_the_rows() -> None:
    found = estimate(mlp(), Scenario("a100", "fp16", "train"))
    on_tensor_cores = sum(row.time_us for row in found.rows if row.uses_tensor_cores)
    assert found.tensor_core_time_percent == pytest.approx(100 * on_tensor_cores / found.step_time_us)
    assert 0 < found.readiness_percent <= found.tensor_core_time_percent
    assert found.amdahl_ceiling == pytest.approx(1 / (1 - found.tensor_core_time_percent / 100))
    assert found.uncertainty_of_percent([]) == 0
    assert 3 < found.uncertainty_percent < 40
    strict = estimate(mlp(), Scenario("a100", "fp32", "train"))
    assert strict.tensor_core_time_percent == strict.readiness_percent == 0
    assert strict.amdahl_ceiling == 1


def test_rows_carry_every_promised_figure() -> None:
    row = next(r for r in estimate(mlp(), Scenario("a100", "fp16")).rows if isinstance(r.work, Gemm))
    assert row.name == "linear"
    assert row.kind == "linear"
    assert row.phase == "forward"
    assert row.limiter in ("math", "memory", "latency")
    for name in (
        "flops",
        "bytes_read",
        "bytes_written",
        "arithmetic_intensity",
        "balance",
        "time_us",
        "split_k",
        "waves",
        "tile_efficiency",
        "wave_efficiency",
        "fraction_of_peak",
        "uncertainty_percent",
    ):
        assert getattr(row, name) > 0, name
    assert row.tile is not None
    assert row.uses_tensor_cores
    assert row.tensor_core_reason
    assert row.calibrated


def test_precisions_and_gpus_are_ordered_as_on_hardware() -> None:
    steps = {p: estimate(mlp(), Scenario("a100", p)).step_time_us for p in ("fp32", "tf32", "fp16")}  # type: ignore[arg-type]
    assert steps["fp32"] > steps["tf32"] > steps["fp16"]
    by_gpu = [estimate(mlp(), Scenario(gpu, "fp16")).step_time_us for gpu in ("t4", "v100", "a100", "h100")]
    assert by_gpu == sorted(by_gpu, reverse=True)


def test_misaligned_heads_cost_the_step() -> None:
    odd = estimate(mlp(classes=32003, batch=4096), Scenario("a100", "fp16"))
    padded = estimate(mlp(classes=32064, batch=4096), Scenario("a100", "fp16"))
    assert padded.step_time_us < 0.8 * odd.step_time_us


def test_operators_without_formula_are_gaps() -> None:
    build = GraphBuilder()
    x = build.linear(build.input(8, 64), 64)
    x = build.op("mystery_operator", "other", {"self": x}, 8, 64)
    x = build.op("mystery_operator", "other", {"self": x}, 8, 64)
    found = estimate(build.graph(x), Scenario("a100", "fp16", "infer"))
    assert [(gap.name, len(gap.op_indices)) for gap in found.gaps] == [("mystery_operator", 2)]
    assert not found.rows_of(1)


def test_products_of_dtypes_without_formula_are_gaps_too() -> None:
    build = GraphBuilder()
    x = build.input(64, 64, dtype="int64")
    other = build.input(64, 64, dtype="int64", name="y")
    out = build.op("mm", "matmul", {"self": x, "mat2": other}, 64, 64, dtype="int64")
    found = estimate(build.graph(out), Scenario("a100", "fp16", "infer"))
    assert [gap.name for gap in found.gaps] == ["mm"]
    assert "int64" in found.gaps[0].reason
    assert found.step_time_us == 0


def gaps_of(*, with_known_flops: bool) -> list[Gap]:
    build = GraphBuilder()
    x = build.linear(build.input(64, 256), 256)
    if with_known_flops:
        x = build.op("linalg_qr", "other", {"self": x}, 64, 64)
    else:
        x = build.op("mystery_operator", "other", {"self": x}, 64, 256)
    graph = build.graph(x)
    return list(with_flops(estimate(graph, Scenario("a100", "fp32", "infer")).gaps, graph))


def test_gaps_say_their_share_of_the_flops_where_it_is_known() -> None:
    (gap,) = gaps_of(with_known_flops=True)
    factorization, product = 4 * 64 * 256 * 64, 2 * 64 * 256 * 256
    assert gap.flops == factorization
    assert gap.flops_percent == pytest.approx(100 * factorization / (factorization + product))
    (unknown,) = gaps_of(with_known_flops=False)
    assert unknown.flops is None
    assert unknown.flops_percent is None


def test_products_that_a_gpu_cannot_run_are_gaps_with_flops() -> None:
    build = GraphBuilder()
    a, b = (build.input(256, 256, dtype="float8_e4m3fn", name=name) for name in "ab")
    out = build.op("_scaled_mm", "matmul", {"self": a, "mat2": b}, 256, 256, dtype="bfloat16")
    graph = build.graph(out)
    assert not estimate(graph, Scenario("h100", "bf16", "infer")).gaps
    (gap,) = with_flops(estimate(graph, Scenario("a100", "bf16", "infer")).gaps, graph)
    assert gap.flops == 2 * 256**3
    assert gap.flops_percent == 100
    assert "needs compute capability 8.9, this is 8.0" in gap.reason


def test_unknown_gpu() -> None:
    with pytest.raises(UsageError, match="Did you mean 'h100'"):
        estimate(mlp(), Scenario("h10"))


def test_adamw_moves_twenty_tensors_per_parameter() -> None:
    graph = mlp()
    kernels = optimizer_kernels(graph, "bf16")
    moved = sum(k.work.bytes_read + k.work.bytes_written for k in kernels if isinstance(k.work, Traffic))
    assert moved == 80 * graph.parameter_count
    assert len(kernels) == len(optimizers()["adamw"].passes)
    assert len(optimizer_kernels(graph, "fp16")) == len(optimizers()["adamw"].passes) + 1
    frozen = replace(graph, parameters=tuple(replace(p, trainable=False) for p in graph.parameters))
    assert optimizer_kernels(frozen, "fp16") == ()
    assert "AdamW" in estimate(graph, Scenario("a100")).assumptions[0]


@pytest.mark.parametrize("batches", [2, 4])
def test_accumulated_gradients_share_one_step_of_the_optimizer(batches: int) -> None:
    graph = mlp()
    once, summed = (estimate(graph, Scenario("a100", "fp16", accumulation=n)) for n in (1, batches))
    assert summed.optimizer_time_us == pytest.approx(once.optimizer_time_us / batches)
    assert summed.forward_time_us == once.forward_time_us
    added = next(row for row in summed.rows if row.role == "accumulate")
    # All batches but the first add their gradients: two tensors read, one written.
    adding = (batches - 1) / batches
    assert added.bytes_read + added.bytes_written == pytest.approx(adding * 3 * 4 * graph.parameter_count)
    assert summed.backward_time_us == pytest.approx(once.backward_time_us + added.time_us)
    assert summed.memory == once.memory
    assert any("accumulated" in said for said in summed.assumptions)


def test_gradients_of_one_batch_are_added_to_nothing() -> None:
    once = estimate(mlp(), Scenario("a100", "fp16"))
    assert not any(row.role == "accumulate" for row in once.rows)
    assert not any("accumulated" in said for said in once.assumptions)
    with pytest.raises(UsageError, match="1 batch or more"):
        Scenario(accumulation=0)


def test_a_compiled_step_moves_less_and_computes_the_same() -> None:
    graph = mlp(width=2048, depth=6)
    eager, compiled = (estimate(graph, Scenario("a100", "fp16", compiled=c)) for c in (False, True))
    assert compiled.bytes_moved <= eager.bytes_moved
    assert compiled.flops >= eager.flops - sum(r.flops for r in eager.rows if isinstance(r.work, Traffic))

    build = GraphBuilder()
    x = build.input(4096, 4096)
    for name in ("relu", "tanh", "sigmoid", "exp"):
        x = build.op(name, "elementwise", {"self": x}, 4096, 4096)
    chain = build.graph(x)
    eager, compiled = (estimate(chain, Scenario("a100", "fp32", "infer", compiled=c)) for c in (False, True))
    assert compiled.bytes_moved == eager.bytes_moved / 4
    assert compiled.step_time_us < 0.5 * eager.step_time_us


def test_compiled_products_are_padded_where_that_pays() -> None:
    work = linear(8192, 50257, 768)
    padded = padded_gemm(work)
    assert padded is not None
    assert (padded[0].n, padded[1].bytes_read > 0) == (50264, True)
    assert padded_gemm(linear(64, 64, 64)) is None
    odd = mlp(classes=32003, batch=4096)
    eager, compiled = (estimate(odd, Scenario("a100", "fp16", compiled=c)) for c in (False, True))
    assert compiled.step_time_us < 0.9 * eager.step_time_us


def test_memory_of_a_training_step() -> None:
    graph = mlp()
    memory = estimate(graph, Scenario("a100", "fp16", "train")).memory
    count = graph.parameter_count
    assert memory.parameters_bytes == memory.gradients_bytes == 4 * count
    assert memory.optimizer_bytes == 8 * count
    inference = estimate(graph, Scenario("a100", "fp16", "infer")).memory
    assert inference.optimizer_bytes == inference.gradients_bytes == 0
    assert inference.total_bytes < memory.total_bytes


def test_the_time_of_equal_layers_grows_with_their_number() -> None:
    short, long = mlp(depth=10, width=512), mlp(depth=1000, width=512)
    for gpu in all_gpus():
        few, many = (
            estimate(graph, Scenario(gpu.id, "fp16", "infer")).step_time_us for graph in (short, long)
        )
        assert 80 < many / few < 110, gpu.id


def test_a_step_states_what_whole_steps_were_off_by() -> None:
    graph = mlp()
    for gpu, percent in (("v100", 10), ("a100", 15), ("h100", 18), ("b200", 25)):
        assert estimate(graph, Scenario(gpu, "fp16")).uncertainty_percent >= percent
    strange = estimate(graph, Scenario("rtx-5090", "fp16"))
    assert strange.uncertainty_percent >= strange.uncertainty_of_percent(range(-1, len(graph.ops)))
