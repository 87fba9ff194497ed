"""The model hash and the aligned share, on models small enough to count by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tclint
from tclint.config.settings import Precision
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.engine.model_pass import aligned_flops_percent, graph_hash
from tclint.graph.ops import Graph


def traced(*layers: nn.Module, inputs: tuple[int, ...] = (64, 64)) -> Graph:
    return tclint.trace(lambda: nn.Sequential(*layers), inputs=torch.empty(inputs, device="meta"))


def share(graph: Graph, precision: Precision = "fp16", gpu: str = "a100") -> float | None:
    return aligned_flops_percent(estimate(graph, Scenario(gpu=gpu, precision=precision, mode="infer")))


def test_equal_models_have_equal_hashes() -> None:
    first, second = traced(nn.Linear(64, 96)), traced(nn.Linear(64, 96))
    assert graph_hash(first) == graph_hash(second)
    assert graph_hash(Graph.from_json(first.to_json())) == graph_hash(first)
    assert len(graph_hash(first)) == 16


@pytest.mark.parametrize(
    "other",
    [
        lambda: traced(nn.Linear(64, 97)),
        lambda: traced(nn.Linear(64, 96, bias=False)),
        lambda: traced(nn.Linear(64, 96), inputs=(65, 64)),
        lambda: traced(nn.Linear(64, 96), nn.ReLU()),
        lambda: traced(nn.Linear(64, 96).requires_grad_(False)),
    ],
)
def test_what_computes_otherwise_has_another_hash(other) -> None:  # type: ignore[no-untyped-def]
    assert graph_hash(other()) != graph_hash(traced(nn.Linear(64, 96)))


def test_aligned_share_is_by_flops() -> None:
    assert share(traced(nn.Linear(64, 96))) == 100.0
    assert share(traced(nn.Linear(64, 97))) == 0.0
    # 64 x 64 x 96 aligned, 64 x 96 x 97 not: 64 of 161 parts.
    assert share(traced(nn.Linear(64, 96), nn.Linear(96, 97))) == pytest.approx(100 * 64 / 161)


def test_the_multiple_is_that_of_the_precision() -> None:
    graph = traced(nn.Linear(64, 100))
    assert share(graph, "fp16") == 0.0
    assert share(graph, "tf32") == 100.0
    assert share(graph, "fp32") is None


def test_what_has_no_multiple_does_not_count() -> None:
    assert share(traced(nn.ReLU())) is None
    image = (8, 32, 16, 16)
    depthwise = nn.Conv2d(32, 32, 3, groups=32)
    assert share(traced(depthwise, inputs=image)) is None
    assert share(traced(depthwise, nn.Conv2d(32, 40, 1), inputs=image)) == 100.0
    assert share(traced(depthwise, nn.Conv2d(32, 41, 1), inputs=image)) == 0.0


def test_pipeline_fills_the_metrics(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        "import torch\n\n\ndef build_model():\n    return torch.nn.Linear(64, 100)\n\n\n"
        "def example_inputs():\n    return torch.empty(64, 64)\n"
    )
    report = tclint.check(["model.py:build_model"])
    (entry,) = report.entries
    assert entry.torch_version == torch.__version__
    assert len(entry.graph_hash) == 16
    a100, v100 = entry.metrics["a100-sxm4-80gb"], entry.metrics["v100-sxm2-16gb"]
    assert a100.aligned_flops_percent == 0.0
    assert a100.memory_bytes
    assert a100.memory_bytes > 4 * 64 * 100
    assert a100.step_flops
    assert a100.step_flops >= 2 * 64 * 64 * 100
    assert set(a100.step_time_us_by_precision) == {"fp32", "tf32", "fp16", "bf16"}
    assert set(v100.step_time_us_by_precision) == {"fp32", "fp16"}
    assert a100.step_time_us_by_precision["fp16"] == a100.step_time_us
