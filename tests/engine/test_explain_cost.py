"""Explaining one operator's cost, beside the same operator with dims padded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import tclint
from tclint.analysis.graph_context import GraphContext
from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.engine.explain_cost import explain_cost, find_ops, product_of
from tclint.graph.lowering.work import Gemm
from tclint.report.cost_text import render


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5003, 256)
        self.blocks = nn.ModuleList(nn.Linear(256, 256) for _ in range(3))
        self.conv = nn.Conv1d(256, 256, 3, padding=1)
        self.lm_head = nn.Linear(256, 5003, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.lm_head(x)


@pytest.fixture(scope="module")
def context() -> GraphContext:
    graph = tclint.trace(Model, torch.zeros(8, 512, dtype=torch.long))
    return GraphContext(graph, Settings(gpus=("a100",)))


def test_the_head_is_shown_beside_the_padded_vocabulary(context: GraphContext) -> None:
    found = explain_cost(context, "lm_head")
    ((present, padded),) = found.sizes
    assert present == 5003
    assert padded % 8 == 0
    assert "embed.weight" in found.coupled
    (gpu,) = found.gpus
    products = [pair for pair in gpu.kernels if pair.before and isinstance(pair.before.work, Gemm)]
    assert [pair.before.role for pair in products if pair.before] == ["forward", "dgrad", "wgrad"]
    for pair in products:
        assert pair.before is not None
        assert pair.after is not None
        assert pair.before.time_us > 1.5 * pair.after.time_us
        before, after = product_of(pair.before), product_of(pair.after)
        assert before is not None
        assert after is not None
        assert min(before.alignments) == 1
        assert min(after.alignments) >= 8


def test_times_are_those_of_the_estimate(context: GraphContext) -> None:
    (gpu,) = explain_cost(context, "lm_head").gpus
    (op,) = find_ops(context.graph, "lm_head")
    own = context.estimate(context.scenarios[0])
    assert gpu.time_us == pytest.approx(own.time_of_us([op.index]))
    assert sum(pair.before.time_us for pair in gpu.kernels if pair.before) == pytest.approx(gpu.time_us)


def test_any_size_can_be_asked_for_by_role_or_by_number(context: GraphContext) -> None:
    by_role = explain_cost(context, "lm_head", ["out_features=6000"])
    by_number = explain_cost(context, "lm_head", ["5003=6000"])
    assert by_role.sizes == by_number.sizes == ((5003, 6000),)
    assert by_role.gpus[0].changed_time_us == by_number.gpus[0].changed_time_us


def test_the_batch_can_be_resized(context: GraphContext) -> None:
    (gpu,) = explain_cost(context, "lm_head", ["batch=16"]).gpus
    forward = next(pair for pair in gpu.kernels if pair.before and isinstance(pair.before.work, Gemm))
    assert forward.before is not None
    assert forward.after is not None
    assert forward.after.flops == 2 * forward.before.flops


def test_an_aligned_layer_has_nothing_beside_it_and_says_why(context: GraphContext) -> None:
    found = explain_cost(context, "blocks.1")
    assert not found.sizes
    assert "aligned" in found.note
    assert found.gpus[0].changed is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lm_haed", "The closest are lm_head"),
        ("linear", "fits 4 places: blocks.0 (#"),
        ("blocks", "fits 3 places: blocks.0, blocks.1, blocks.2"),
        ("#9999", "There is no op #9999"),
    ],
)
def test_names_that_are_unknown_or_fit_several_ops(context: GraphContext, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        find_ops(context.graph, name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("pad", "said"),
    [
        ("out_features", "--pad takes DIM=SIZE"),
        ("depth=8", "its dims are in_features=256, out_features=5003, and batch"),
        ("out_features=0", "--pad takes DIM=SIZE"),
    ],
)
def test_dims_that_cannot_be_padded(context: GraphContext, pad: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain_cost(context, "lm_head", [pad])
    assert said in str(caught.value)


def test_a_single_operator_is_found_by_its_own_name_and_by_index(context: GraphContext) -> None:
    (conv,) = find_ops(context.graph, "conv1d")
    assert conv.module_path == "conv"
    assert find_ops(context.graph, f"#{conv.index}") == (conv,)


def test_a_convolution_shows_the_product_that_it_implies(context: GraphContext) -> None:
    (gpu,) = explain_cost(context, "conv").gpus
    rows = [pair.before for pair in gpu.kernels if pair.before and pair.before.kind == "conv"]
    products = {row.role: product_of(row) for row in rows if product_of(row)}
    forward, wgrad = products["forward"], products["wgrad"]
    assert forward is not None
    assert wgrad is not None
    assert (forward.m, forward.n, forward.k) == (8 * 512, 256, 3 * 256)
    assert (wgrad.m, wgrad.n, wgrad.k) == (3 * 256, 256, 8 * 512)


def test_the_text_has_what_an_expert_asks_for_in_80_columns(context: GraphContext) -> None:
    text = render(explain_cost(context, "lm_head"), "model.py:Model, train, fp16 autocast")
    for wanted in (
        "4096 x 5003 x 256",
        "tile ",
        "split-K",
        "waves",
        "wave efficiency",
        "bytes read",
        "limited by",
        "misalignment",
        "resized",
        "the whole step",
    ):
        assert wanted in text
    assert max(map(len, text.splitlines())) <= 88


MODEL = """
from torch import nn, zeros
def build_model():
    return nn.Sequential(nn.Linear(64, 100), nn.Linear(100, 129)), zeros(32, 64)
"""


def run(tmp_path: Path, *arguments: str) -> Any:
    (tmp_path / "model.py").write_text(MODEL)
    target = str(tmp_path / "model.py") + ":build_model"
    return CliRunner().invoke(cli, ["explain-cost", target, *arguments, "--isolated"])


def test_the_command_prints_text_or_json(tmp_path: Path) -> None:
    text = run(tmp_path, "--op", "1", "--gpu", "a100")
    assert text.exit_code == 0, text.output
    assert "32 x 129 x 100" in text.stdout
    document = json.loads(run(tmp_path, "--op", "1", "--gpu", "a100", "--format", "json").stdout)
    kernels = document["gpus"]["a100-sxm4-80gb"]["kernels"]
    assert {(k["as_is"]["m"], k["as_is"]["n"], k["as_is"]["k"]) for k in kernels} >= {(32, 129, 100)}


def test_the_part_of_one_gpu_is_said_to_be_one(tmp_path: Path) -> None:
    text = run(tmp_path, "--op", "1", "--gpu", "a100", "--tensor-parallel", "4").stdout
    assert "on one of 4 GPUs under tensor parallelism" in " ".join(text.split())


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["explain-cost", str(tmp_path), "--op", "x"])
    assert result.exit_code == 2
    assert "is not a model target" in result.output


class EveryKind(nn.Module):
    """One operator of every kind that takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.rnn = nn.LSTM(64, 64, batch_first=True)
        self.norm = nn.LayerNorm(64)
        self.fc = nn.Linear(64, 64)
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pool = nn.MaxPool2d(2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.rnn(self.embed(tokens))[0])
        q = self.fc(x).view(8, 32, 4, 16).transpose(1, 2)
        attended = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        scores = torch.softmax(q @ attended.transpose(-2, -1), -1)
        images = self.pool(self.depthwise(self.conv(scores.reshape(8, 1, 128, 32))))
        logits = torch.cat([torch.relu(images), images]).sum((2, 3))
        return torch.nn.functional.cross_entropy(logits, torch.zeros(16, dtype=torch.long))


def test_an_operator_of_every_kind_explains_itself() -> None:
    graph = tclint.trace(EveryKind, torch.zeros(8, 32, dtype=torch.long))
    every = GraphContext(graph, Settings(gpus=("a100",)))
    kinds = {op.kind for op in graph.ops}
    assert kinds >= {
        "attention", "conv", "copy", "elementwise", "embedding", "linear", "loss", "matmul", "norm",
        "pool", "reduction", "rnn", "softmax",
    }  # fmt: skip
    names = [f"#{op.index}" for op in graph.ops if op.kind != "view"]
    for name in [*names, "optimizer"]:
        found = explain_cost(every, name)
        text = render(found, "how")
        (gpu,) = found.gpus
        assert gpu.kernels, name
        for said in ("bytes read", "limited by", "memory alone", "launch", "share of DRAM bandwidth", "time"):
            assert said in text, name
        rows = [pair.before for pair in gpu.kernels if pair.before is not None]
        assert sum(row.time_us for row in rows) == pytest.approx(gpu.time_us)
        # No limit alone takes longer than the kernel.
        assert all(part_us <= 1.0001 * row.time_us for row in rows for _, part_us in row.parts_us), name


def test_the_optimizer_is_explained_in_training_only(context: GraphContext) -> None:
    found = explain_cost(context, "optimizer")
    own = context.estimate(context.scenarios[0])
    assert found.gpus[0].time_us == pytest.approx(own.optimizer_time_us)
    assert "AdamW" in render(found, "how")
    with pytest.raises(UsageError, match="--mode train"):
        explain_cost(context.with_settings(mode="infer"), "optimizer")
    with pytest.raises(UsageError, match="no dims"):
        explain_cost(context, "optimizer", ["batch=4"])
