"""What a run takes and what fixes save, in GPU-hours and money, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

pytest.importorskip("torch")

NET = """\
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(1024, 1021), nn.ReLU(), nn.Linear(1021, 1024))


def example_inputs():
    return torch.zeros(8192, 1024)
"""
GPU = "a100-sxm4-80gb"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def run(*arguments: str, gpu: str = "a100") -> Result:
    return CliRunner().invoke(cli, ["net.py:build", "--gpu", gpu, *arguments], catch_exceptions=False)


def report(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metrics on the GPU, and the effect of the padding there."""
    found = json.loads(run("--format", "json", *arguments).stdout)
    [finding] = [one for one in found["findings"] if one["code"] == "DIM001"]
    return found["entries"][0]["metrics"][GPU], finding["effect"][GPU]


def test_a_run_and_what_a_fix_saves_of_it(repository: Path) -> None:
    (repository / "pyproject.toml").write_text("[tool.tclint]\nsteps = 1000000\ngpu-hour-price = 2.5\n")
    metrics, effect = report()
    hours = metrics["step_time_us"] * 1e6 / 3.6e9
    assert metrics["run_gpu_hours"] == pytest.approx(hours, rel=1e-2)
    assert metrics["run_price"] == pytest.approx(2.5 * hours, rel=1e-2)
    assert metrics["run_gpu_hours_fixed"] == pytest.approx(metrics["step_time_fixed_us"] / 3600, rel=1e-2)
    assert effect["run_gpu_hours"] == pytest.approx(effect["gain_us"] / 3600, abs=1e-3)
    assert effect["run_price"] == pytest.approx(2.5 * effect["gain_us"] / 3600, abs=1e-2)
    text = " ".join(run().stdout.split())
    assert "a run saves 0." in text
    assert "a run of 1000000 steps takes " in text
    assert "less a run" in run("--format", "html").stdout
    assert "a run saves" in run("--format", "github").stdout


def test_a_measured_step_anchors_it_and_is_said_to(repository: Path) -> None:
    _, predicted = report("--steps", "1000")
    metrics, effect = report("--steps", "1000", "--measured", "120ms")
    assert metrics["measured_step_time_us"] == 120_000
    assert metrics["run_gpu_hours"] == pytest.approx(120_000 * 1000 / 3.6e9, abs=1e-3)
    assert "run_price" not in metrics
    assert effect["gain_percent"] == predicted["gain_percent"]
    assert effect["run_gpu_hours"] == pytest.approx(
        metrics["run_gpu_hours"] * effect["gain_percent"] / 100, abs=1e-3
    )
    text = " ".join(run("--steps", "1000", "--measured", "120ms").stdout.split())
    assert "measured step 120 ms, predicted " in text
    assert "fixes save the predicted share of it" in text


def test_without_steps_nothing_is_said_of_runs(repository: Path) -> None:
    metrics, effect = report()
    assert not [name for name in (*metrics, *effect) if name.startswith(("run_", "measured_"))]
    assert "GPU-hours" not in run().stdout


@pytest.mark.parametrize(
    ("arguments", "gpu", "said"),
    [
        (("--gpu-hour-price", "2"), "a100", "--gpu-hour-price goes with --steps"),
        (("--measured", "1s"), "a100", "--measured goes with --steps"),
        (("--measured", "1s", "--steps", "5"), "a100,h100", "--measured is the step of one GPU"),
        (("--measured", "120", "--steps", "5"), "a100", "expects a time with its unit"),
        (("--gpu-hour-price", "-1"), "a100", "expects a price of 0 or more"),
    ],
)
def test_mistakes_are_one_sentence(repository: Path, arguments: tuple[str, ...], gpu: str, said: str) -> None:
    result = run(*arguments, gpu=gpu)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
