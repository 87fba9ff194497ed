"""Autocast: the lists against torch itself, and what they do to a graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cost_support import GraphBuilder

from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.cost.transforms.casts import apply_precision
from tclint.graph.lowering.work import Traffic
from tclint.graph.ops import Graph
from tclint.graph.ops.op_tables import autocast_lists

torch = pytest.importorskip("torch")


def registered_names() -> set[str]:
    names = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    return {name.removeprefix("aten::").split(".")[0] for name in names if name.startswith("aten::")}


# Registered for CUDA, but no rule about dtypes: backend entry points that a trace never shows.
NOT_IN_THE_LISTS = {"cudnn_convolution", "cudnn_convolution_transpose"}


def test_every_operator_that_autocast_intercepts_is_listed() -> None:
    missing = registered_names() - set(autocast_lists().policies) - NOT_IN_THE_LISTS
    assert not missing


@pytest.mark.parametrize(
    ("macro", "policy"),
    [
        ("AT_FORALL_LOWER_PRECISION_FP", "lower_precision"),
        ("AT_FORALL_FP32", "fp32"),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", "fp32_result"),
        ("AT_FORALL_PROMOTE", "promote"),
    ],
)
def test_policies_are_those_of_the_installed_torch(macro: str, policy: str) -> None:
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    if not header.exists():
        pytest.skip("torch was installed without headers")
    body = header.read_text(encoding="utf-8").split(f"#define {macro}(_)", 1)[1].split("\n\n", 1)[0]
    names = set(re.findall(r"_\((\w+)", body))
    assert names
    lists = autocast_lists()
    assert {name for name in names if lists.policy(name) != policy} == set()


@pytest.mark.parametrize("name", ["inner", "linalg_matmul", "matrix_power", "_grouped_mm", "bilinear"])
def test_what_reaches_a_listed_product_inside_is_cast_there(name: str) -> None:
    calls = {
        "inner": torch.inner,
        "linalg_matmul": torch.linalg.matmul,
        "matrix_power": lambda x, _: torch.matrix_power(x, 3),
        "_grouped_mm": lambda x, y: torch._grouped_mm(x, y[None], offs=torch.tensor([8], dtype=torch.int32)),
        "bilinear": lambda x, y: torch.nn.functional.bilinear(x, y, y[None]),
    }
    if name == "_grouped_mm" and not hasattr(torch, name):
        pytest.skip("this torch has none")
    with torch.autocast("cpu", torch.bfloat16):  # these have no entry of their own for any device
        try:
            real = calls[name](torch.ones(8, 8), torch.ones(8, 8)).dtype
        except RuntimeError:
            pytest.skip("this torch has none for the CPU")
    assert (autocast_lists().policy(name) == "lower_precision") == (real == torch.bfloat16)


def mlp() -> Graph:
    build = GraphBuilder()
    x = build.input(32, 64)
    hidden = build.linear(x, 128, "fc1")
    activated = build.op("relu", "elementwise", {"self": hidden}, 32, 128)
    norm_weight = build.parameter("norm.weight", 128)
    normed = build.op("layer_norm", "norm", {"input": activated, "weight": norm_weight}, 32, 128)
    added = build.op("add", "elementwise", {"self": activated, "other": normed}, 32, 128)
    out = build.linear(added, 10, "fc2")
    return build.graph(build.op("softmax", "softmax", {"self": out}, 32, 10))


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_dtypes_follow_torch(precision: str, dtype: str) -> None:
    applied = apply_precision(mlp(), precision, "train")  # type: ignore[arg-type]
    ours = [op.outputs[0].dtype for op in applied.ops]
    torch_dtype = getattr(torch, dtype)
    # The CPU's autocast has other lists; these operators are in both, or in neither with the same effect.
    x = torch.randn(32, 64)
    fc1, fc2 = torch.nn.Linear(64, 128), torch.nn.Linear(128, 10)
    with torch.autocast("cpu", dtype=torch_dtype):
        hidden = fc1(x)
        activated = torch.relu(hidden)
    assert ours[:2] == [str(t.dtype).removeprefix("torch.") for t in (hidden, activated)]
    assert (activated + torch.ones(128)).dtype == torch.float32  # promotion with a float32 tensor
    assert ours[2:] == ["float32", "float32", dtype, "float32"]
    with torch.autocast("cpu", dtype=torch_dtype):
        assert fc2(activated + torch.ones(128)).dtype == torch_dtype


def test_casts_are_listed_once_per_weight() -> None:
    build = GraphBuilder()
    x = build.input(8, 64)
    weight = build.parameter("shared.weight", 64, 64)
    frozen = build.parameter("frozen.weight", 64, 64, trainable=False)
    for _ in range(2):
        x = build.op("linear", "linear", {"input": x, "weight": weight}, 8, 64)
        x = build.op("linear", "linear", {"input": x, "weight": frozen}, 8, 64)
    applied = apply_precision(build.graph(x), "fp16", "train")
    casts = [(cast.parameter, cast.shape) for op in applied.ops for cast in op.casts]
    # The input once, the trained weight once (autocast caches it), the frozen one at every use.
    assert casts == [(None, (8, 64)), ("shared.weight", (64, 64)), (None, (64, 64)), (None, (64, 64))]


def test_normalisation_casts_up_and_the_next_layer_down() -> None:
    applied = apply_precision(mlp(), "fp16", "train")
    norm, last = applied.ops[2], applied.ops[4]
    assert [(c.from_dtype, c.to_dtype) for c in norm.casts] == [("float16", "float32")]
    assert ("float32", "float16") in [(c.from_dtype, c.to_dtype) for c in last.casts]


def test_softmax_converts_inside_its_kernel() -> None:
    softmax = apply_precision(mlp(), "fp16", "train").ops[5]
    assert softmax.inputs[0].dtype == "float16"
    assert softmax.outputs[0].dtype == "float32"
    assert softmax.casts == ()


def test_in_place_operators_keep_the_dtype_of_what_they_change() -> None:
    build = GraphBuilder()
    hidden = build.linear(build.input(8, 64), 64)
    out = build.op("exp", "elementwise", {"self": hidden}, 8, 64, in_place=True)
    applied = apply_precision(build.graph(out), "fp16", "train")
    assert applied.ops[1].outputs[0].dtype == "float16"
    assert applied.ops[1].casts == ()


def test_integers_doubles_and_explicit_dtypes_are_left_alone() -> None:
    build = GraphBuilder()
    hidden = build.linear(build.input(8, 64), 64)
    up = build.op("to", "copy", {"self": hidden}, 8, 64, attributes={"dtype": "float32"})
    double = build.input(8, 64, dtype="float64", name="d")
    weight = build.parameter("w", 64, 64, dtype="float64")
    out = build.op("linear", "linear", {"input": double, "weight": weight}, 8, 64, dtype="float64")
    applied = apply_precision(build.graph(up, out), "fp16", "train")
    assert applied.ops[1].outputs[0].dtype == "float32"
    assert [spec.dtype for spec in applied.ops[2].inputs] == ["float64", "float64"]
    assert applied.ops[2].casts == ()


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_switches_change_no_dtype(precision: str) -> None:
    graph = mlp()
    assert apply_precision(graph, precision, "train") is graph  # type: ignore[arg-type]


def test_the_number_of_operators_stays() -> None:
    graph = mlp()
    applied = apply_precision(graph, "fp16", "infer")
    assert [op.index for op in applied.ops] == [op.index for op in graph.ops]


# --- models in 16 bits, pure precisions, TF32 per library


def recurrent_and_convolution() -> Graph:
    build = GraphBuilder()
    x = build.input(32, 64, 16, 16)
    kernel = build.parameter("conv.weight", 64, 64, 3, 3)
    fields = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    image = build.op(
        "conv2d", "conv", {"input": x, "weight": kernel}, 32, 64, 16, 16, attributes=dict(fields)
    )
    steps = build.input(20, 64, 256, name="steps")
    weights = {
        "params[0]": build.parameter("rnn.weight_ih", 1024, 256),
        "params[1]": build.parameter("rnn.weight_hh", 1024, 256),
    }
    attributes = {"has_biases": False, "num_layers": 1}
    hidden = build.op("lstm", "rnn", {"input": steps, **weights}, 20, 64, 256, attributes=dict(attributes))
    return build.graph(image, build.linear(hidden, 256, "head"))


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp32", {"conv2d": False, "lstm": False, "linear": False}),
        ("tf32", {"conv2d": True, "lstm": True, "linear": True}),
        ("tf32-cudnn", {"conv2d": True, "lstm": True, "linear": False}),
        ("tf32-matmul", {"conv2d": False, "lstm": False, "linear": True}),
    ],
)
def test_tf32_has_a_switch_per_library(precision: Any, expected: dict[str, bool]) -> None:
    found = estimate(recurrent_and_convolution(), Scenario("a100", precision))
    used = {row.name: row.uses_tensor_cores for row in found.rows if not isinstance(row.work, Traffic)}
    assert used == expected


def half_mlp(dtype: str = "float16", norm_dtype: str | None = None) -> Graph:
    build = GraphBuilder()
    x = build.input(32, 64, dtype=dtype)
    weight = build.parameter("fc.weight", 128, 64, dtype=dtype)
    hidden = build.op("linear", "linear", {"input": x, "weight": weight}, 32, 128, dtype=dtype)
    norm = build.parameter("norm.weight", 128, dtype=norm_dtype or dtype)
    return build.graph(
        build.op("layer_norm", "norm", {"input": hidden, "weight": norm}, 32, 128, dtype=dtype)
    )


@pytest.mark.parametrize("norm_dtype", ["float16", "float32"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_model_with_16_bit_weights_runs_without_autocast(precision: Any, norm_dtype: str) -> None:
    graph = half_mlp(norm_dtype=norm_dtype)
    assert apply_precision(graph, precision, "train") is graph
    assert "without autocast" in estimate(graph, Scenario("a100", precision)).assumptions[0]


def test_one_weight_in_fp32_means_autocast() -> None:
    build = GraphBuilder()
    x = build.input(32, 64, dtype="float16")
    weight = build.parameter("a.weight", 128, 64, dtype="float16")
    hidden = build.op("linear", "linear", {"input": x, "weight": weight}, 32, 128, dtype="float16")
    graph = build.graph(build.linear(hidden, 64, "b"))
    assert apply_precision(graph, "fp16", "train") is not graph


@pytest.mark.parametrize(("precision", "dtype"), [("pure-fp16", "float16"), ("pure-bf16", "bfloat16")])
def test_pure_half_converts_everything_and_casts_nothing(precision: Any, dtype: str) -> None:
    applied = apply_precision(mlp(), precision, "train")
    specs = [spec for op in applied.ops for spec in (*op.inputs, *op.outputs)]
    assert {spec.dtype for spec in (*specs, *applied.inputs, *applied.outputs)} == {dtype}
    assert {parameter.dtype for parameter in applied.parameters} == {dtype}
    assert not any(op.casts for op in applied.ops)


def test_pure_half_is_what_the_converted_model_costs() -> None:
    converted = estimate(half_mlp("float32"), Scenario("a100", "pure-fp16"))
    traced = estimate(half_mlp("float16"), Scenario("a100", "fp16"))
    assert converted.forward_time_us == traced.forward_time_us
    assert converted.memory == traced.memory


def test_a_half_model_keeps_what_it_computes_in_fp32() -> None:
    build = GraphBuilder()
    x = build.input(8, 64, dtype="float16")
    weight = build.parameter("w", 64, 64, dtype="float16")
    hidden = build.op("linear", "linear", {"input": x, "weight": weight}, 8, 64, dtype="float16")
    up = build.op("softmax", "softmax", {"self": hidden}, 8, 64, attributes={"dtype": "float32"})
    applied = apply_precision(build.graph(up), "pure-bf16", "infer")
    assert [op.outputs[0].dtype for op in applied.ops] == ["bfloat16", "float32"]


def test_gradscaler_takes_part_under_fp16_autocast_only() -> None:
    def passes(precision: Any) -> int:
        return sum(row.phase == "optimizer" for row in estimate(mlp(), Scenario("a100", precision)).rows)

    assert passes("fp16") == passes("bf16") + 1 == passes("pure-fp16") + 1


def test_fp64_runs_on_tensor_cores_of_data_centre_gpus_only() -> None:
    for gpu, used in (("a100", True), ("v100", False), ("rtx-4090", False)):
        found = estimate(mlp(), Scenario(gpu, "fp64"))
        product = next(row for row in found.rows if row.name == "linear")
        assert product.work.dtype == "float64"
        assert product.uses_tensor_cores is used
        assert not product.calibrated


def test_calibrated_means_what_runs_and_not_what_was_asked_for() -> None:
    def calibrated(gpu: str, precision: Any) -> bool:
        return estimate(mlp(), Scenario(gpu, precision)).products_calibrated

    assert calibrated("v100", "fp16")
    assert calibrated("v100", "pure-fp16")
    assert not calibrated("v100", "bf16")  # runs in fp32, converted
    assert not calibrated("a100", "tf32")  # never measured: the constants are those of 16 bits
    assert calibrated("h100", "bf16")
    assert not calibrated("h100", "fp8")
