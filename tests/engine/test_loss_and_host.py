"""What a training step holds beside its kernels in the forward: the loss, and the host that launches them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tclint.cli.main import cli
from tclint.core.finding import Effect, Finding, GpuEffect, Location
from tclint.engine.check import rank

_MODEL = """
import torch
from torch import nn

class Words(nn.Module):
    def __init__(self, classes=50304):
        super().__init__()
        self.table = nn.Embedding(classes, 256)
        self.head = nn.Linear(256, classes)

    def forward(self, tokens):
        return self.head(self.table(tokens))

class Scored(Words):
    def forward(self, tokens):
        return nn.functional.cross_entropy(super().forward(tokens).flatten(0, 1), tokens.flatten())

class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.stem(x)

class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(64, 64, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]
"""


@pytest.fixture(autouse=True)
def _model(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(_MODEL, encoding="utf-8")


def _entry(target: str, *options: str) -> dict[str, Any]:
    arguments = [f"model.py:{target}", "--gpu", "a100", "--format", "json", "--fail-on", "never", *options]
    found: dict[str, Any] = json.loads(CliRunner().invoke(cli, arguments).stdout)["entries"][0]
    return found


def _said(entry: dict[str, Any]) -> str:
    return next((a["what"] for a in entry["assumptions"] if a["what"].startswith("the loss is not")), "")


def _step_us(entry: dict[str, Any]) -> float:
    step: float = entry["metrics"]["a100-sxm4-80gb"]["step_time_us"]
    return step


def test_a_step_without_a_loss_says_what_it_would_add() -> None:
    words = ("--input", "tokens=int64[8,128]")
    missing, added, traced = (
        _entry("Words", *words),
        _entry("Words", *words, "--loss", "cross_entropy"),
        _entry("Scored", *words),
    )
    assert "cross-entropy over 50304 classes would add" in _said(missing)
    assert "--loss cross_entropy adds it" in _said(missing)
    assert not _said(added)
    assert not _said(traced)
    assert _step_us(added) == pytest.approx(_step_us(traced), rel=0.01)
    assert _step_us(added) > 1.1 * _step_us(missing)
    assert added["graph_hash"] == missing["graph_hash"]
    assert added["metrics"]["a100-sxm4-80gb"]["largest_batch"] is not None


def test_a_loss_that_would_not_be_felt_is_said_in_few_words() -> None:
    said = _said(
        _entry("Words", "--arg", "classes=64", "--input", "tokens=int64[64,2048]", "--mode", "train")
    )
    assert said.startswith("the loss is not in the step: cross-entropy over 64 classes would add")
    assert _said(_entry("Words", "--mode", "infer")) == ""


def test_pictures_get_no_loss_of_classes() -> None:
    assert _said(_entry("Pictures")) == "the loss is not in the step"
    entry = _entry("Pictures", "--loss", "cross_entropy")
    assert _said(entry) == "the loss is not in the step, because no linear layer makes the model's output"


def test_a_step_of_small_kernels_is_bound_by_the_host() -> None:
    options = ("--arg", "classes=64", "--input", "tokens=int64[1,8]")
    small = _entry("Words", *options)["metrics"]["a100-sxm4-80gb"]
    large = _entry("Words", "--input", "tokens=int64[8,1024]")["metrics"]["a100-sxm4-80gb"]
    assert (small["bound"], large["bound"]) == ("host", "gpu")
    assert small["host_time_us"] == pytest.approx(20.0 * small["launch_count"], rel=0.2)
    text = CliRunner().invoke(cli, ["model.py:Words", *options, "-v", "--fail-on", "never"])
    assert "host-bound on a100-sxm4-80gb" in text.stdout
    assert "faster kernels will not be felt" in " ".join(text.stdout.split())


def test_findings_say_what_is_felt_of_their_gain() -> None:
    def effects(*options: str) -> dict[str, dict[str, float]]:
        text = (
            CliRunner()
            .invoke(cli, ["model.py:Words", *options, "--format", "json", "--min-gain", "0"])
            .stdout
        )
        found = json.loads(text)["findings"]
        return {
            each["code"]: each["effect"]["a100-sxm4-80gb"]
            for each in found
            if "unknown" not in each["effect"]
        }

    small = effects("--arg", "classes=1003", "--input", "tokens=int64[1,8]")
    assert next(iter(small)) == "ARC021", "the batch is felt, and comes first"
    assert small["ARC021"]["felt_us"] > small["ARC021"]["gain_us"]
    assert abs(small["DIM003"]["felt_us"]) < 0.1 * small["DIM003"]["gain_us"]
    large = effects("--arg", "classes=50257", "--input", "tokens=int64[8,1024]")
    assert "felt_us" not in large["DIM003"]


def test_what_is_not_felt_comes_later() -> None:
    def finding(code: str, gain_percent: float, felt_us: float | None) -> Finding:
        effect = Effect(
            {"a100-sxm4-80gb": GpuEffect(100.0, gain_percent, gain_percent, 8.0, felt_us=felt_us)}
        )
        return Finding(code, "name", "warning", "high", "Slow.", Location("model.py", 1), effect=effect)

    found = [finding("DIM001", 50.0, 0.0), finding("ARC016", 10.0, 30.0), finding("ARC021", 20.0, None)]
    assert [each.code for each in rank(found)] == ["ARC016", "ARC021", "DIM001"]


@pytest.mark.parametrize(
    ("options", "sent", "told"),
    [
        (("--parallel", "ddp"), 2 * 7 / 8, "ddp over 8 GPUs"),
        (("--parallel", "fsdp", "--gpus", "4"), 3 * 3 / 4, "fsdp over 4 GPUs"),
        # Gradients that GPUs keep whole are sent once a step, others for each batch; times are per batch.
        (("--parallel", "ddp", "--accumulation", "4"), 2 * 7 / 8 / 4, "per batch on average"),
        (("--parallel", "zero2", "--accumulation", "4"), (1 + 1 / 4) * 7 / 8, "per batch on average"),
        (("--parallel", "zero3", "--accumulation", "4"), 3 * 7 / 8, "per batch on average"),
        ((), None, ""),
        (("--parallel", "ddp", "--mode", "infer"), None, ""),
    ],
)
def test_several_gpus_send_their_gradients(options: tuple[str, ...], sent: float | None, told: str) -> None:
    entry = _entry("Pictures", *options)
    metrics = entry["metrics"]["a100-sxm4-80gb"]
    parameters = 4 * (3 * 8 * 9 + 8)
    expected = None if sent is None else round(sent * parameters)
    assert metrics["communication_bytes"] == expected
    if expected is not None:  # 300 GB/s in one direction: NVIDIA A100 datasheet, 600 GB/s in both
        assert metrics["communication_bound_us"] == pytest.approx(expected / 300e3, abs=1e-3)
        text = CliRunner().invoke(cli, ["model.py:Pictures", *options, "-v", "--fail-on", "never"]).stdout
        assert told in " ".join(text.split())
        assert "NVLink 3" in " ".join(text.split())


def test_split_layers_send_their_sums_beside_the_step() -> None:
    options = ("--input", "tokens=int64[1,64]", "--tensor-parallel", "2", "--parallel", "ddp", "--gpus", "8")
    metrics = _entry("Scored", *options)["metrics"]["a100-sxm4-80gb"]
    # Of the table's rows in float32, and of what the head reads, in 16 bits.
    sums = 64 * 256 * (4 + 2)
    assert metrics["tensor_parallel_bytes"] == sums
    assert metrics["tensor_parallel_bound_us"] == pytest.approx(sums / 300e3, abs=1e-3)
    parameters = 4 * (2 * 50304 * 256 + 50304) // 2
    assert metrics["memory"]["gradients_bytes"] == parameters
    assert metrics["communication_bytes"] == round(2 * parameters * 3 / 4)
    arguments = ["model.py:Scored", "--gpu", "a100", "-v", "--fail-on", "never", *options]
    text = " ".join(CliRunner().invoke(cli, arguments).stdout.split())
    assert "ddp over 4 GPUs: each a100-sxm4-80gb sends" in text
    assert "tensor parallel over 2 GPUs: each a100-sxm4-80gb sends" in text
    assert "memory of each GPU" in text
    assert "tensor parallel over 2 GPUs: 1 of 1 product is split" in text


def test_sums_are_sent_for_every_batch() -> None:
    options = ("--input", "tokens=int64[1,64]", "--tensor-parallel", "2")
    once, often = (
        _entry("Scored", *options, "--accumulation", batches)["metrics"]["a100-sxm4-80gb"]
        for batches in ("1", "4")
    )
    assert once["tensor_parallel_bytes"] == often["tensor_parallel_bytes"] > 0
    arguments = ["model.py:Scored", "--gpu", "a100", "-v", "--fail-on", "never", *options]
    text = " ".join(CliRunner().invoke(cli, [*arguments, "--accumulation", "4"]).stdout.split())
    assert "per batch in 2 all-reduces" in text


def test_one_group_and_nothing_that_is_split_send_nothing() -> None:
    options = ["--parallel", "zero1", "--gpus", "4", "--tensor-parallel", "4", "-v", "--fail-on", "never"]
    found = CliRunner().invoke(cli, ["model.py:Pictures", "--gpu", "a100", *options])
    text = " ".join(found.stdout.split())
    assert "tensor parallel over 4 GPUs: none of 1 product is split, and each GPU runs the whole" in text
    assert "sends" not in text
    assert "of 1 GPUs" not in text


@pytest.mark.parametrize(("gpus", "code"), [("8", 2), ("6", 0)])
def test_groups_of_gpus_must_come_out_even(gpus: str, code: int) -> None:
    options = ["--parallel", "ddp", "--gpus", gpus, "--tensor-parallel", "3", "--fail-on", "never"]
    found = CliRunner().invoke(cli, ["model.py:Pictures", "--gpu", "a100", *options])
    assert found.exit_code == code
    assert ("give --gpus a multiple of --tensor-parallel" in found.output) == (code == 2)


def test_a_recurrent_layer_is_launched_by_its_library() -> None:
    """cuDNN launches the kernels of all time steps in one call."""
    steps = _entry("Steps", "--input", "x=float32[8,400,64]")["metrics"]["a100-sxm4-80gb"]
    assert steps["launch_count"] > 1_000
    assert steps["host_time_us"] < 5.0 * steps["launch_count"]
