"""`tclint pad --check`: both models run in processes of their own, whatever their code does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from torch import nn

from tclint.cli.main import cli

MODEL = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(6, width), nn.Linear(width, 4)

    def forward(self, x):
        x = self.up(x)
        FORWARD
        return self.down(x)

def build(width=WIDTH):
    return Net(width)

def example_inputs():
    return torch.randn(64, 30, 6)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(forward: str, sizes: tuple[int, int] = (5, 8)) -> None:
    for name, width in zip(("old", "new"), sizes, strict=True):
        text = MODEL.replace("FORWARD", forward).replace("WIDTH", str(width))
        Path(f"{name}.py").write_text(text)


def check(*more: str, models: tuple[str, str] = ("old.py:build", "new.py:build")) -> Result:
    return CliRunner().invoke(cli, ["pad", *more, "--check", *models, "--isolated"])


def test_models_that_compute_the_same() -> None:
    write("x = torch.relu(x)")
    result = check()
    assert (result.exit_code, result.stdout) == (
        0, "5 -> 8 (up.weight, up.bias, down.weight)\nexact (3 runs of both models in float64)\n"
    )  # fmt: skip


def test_a_gate_by_the_middle_entry() -> None:
    write("x = x * torch.sigmoid(x[..., x.shape[-1] // 2, None])")
    result = check()
    assert result.exit_code == 1
    assert "not exact: sigmoid at new.py:13 gives other values, and output 0 differs by " in result.stdout


def test_half_the_width_as_a_factor() -> None:
    write("half = x.shape[-1] // 2; x = x * half")
    original = nn.ModuleDict({"up": nn.Linear(6, 5), "down": nn.Linear(5, 4)})
    torch.save({"model": original.state_dict()}, "old.pt")
    result = check("old.pt", "--output", "new.pt")
    assert result.exit_code == 0
    told = "(4 runs of both models in float64; gradients were not compared):"  # the checkpoint's are one more
    assert f"exact only with these edits {told}\n" in result.stdout
    assert "    2, with which mul at new.py:13 computes, kept as it is\n" in result.stdout
    assert "warning: the model computes something else until its code keeps these numbers." in result.stderr
    made = torch.load("new.pt")["model"]
    assert made["up.weight"].shape == (8, 6)
    assert torch.equal(made["up.weight"][:5], original["up"].weight)


def test_a_plan_that_was_proved_otherwise_is_checked_anew() -> None:
    import json

    import tclint

    names: dict[str, object] = {}
    write("x = x.mean(-1, keepdim=True) + x")
    exec(Path("old.py").read_text(), names)
    build = names["build"]
    assert callable(build)
    plan = tclint.verify_padding(build(5), build(8), torch.randn(3, 6))
    assert plan.proof.verdict == "inexact"
    Path("plan.json").write_text(json.dumps({"weights": plan.to_json()}))
    write("x = x.mean(1, keepdim=True) + x")
    result = check("--plan", "plan.json")
    assert result.exit_code == 0
    assert "exact (3 runs" in result.stdout


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("os._exit(3) if not x.is_meta else 0", "ended its process with exit code 3"),
        ("x.numpy() if not x.is_meta else 0; raise_ = 1 / (x.is_meta + 0)", "ZeroDivisionError"),
        ("torch.zeros(1 << 33)[0] if not x.is_meta else 0", "needed more than 8192 MiB of memory"),
    ],
)
def test_what_a_run_does_to_its_process(forward: str, reason: str) -> None:
    write(forward)
    result = check()
    assert result.exit_code == 1, result.output
    assert "not known to be exact: " in result.stdout
    assert reason in result.stdout


@pytest.mark.skipif(
    torch.version.cuda is not None, reason="a build for CUDA needs more than the limit itself"
)
def test_a_model_that_is_too_large_runs_with_fewer_layers() -> None:
    for name, width in (("old", 2003), ("new", 2008)):
        Path(f"{name}.py").write_text(
            "import torch\n"
            "from torch import nn\n"
            "class Block(nn.Sequential):\n"
            f"    def __init__(self): super().__init__(nn.Linear(500, {width}), nn.ReLU(), "
            f"nn.Linear({width}, 500))\n"
            "def build():\n"
            "    return nn.Sequential(nn.Linear(6, 500), nn.Sequential(*(Block() for _ in range(12))))\n"
            "def example_inputs(): return torch.randn(4, 6)\n"
        )
    result = check("--memory-limit", "512MiB")
    assert result.exit_code == 0, result.output
    assert "exact (3 runs of both models in float64, with the first 2 of 12 layers of 1)" in result.stdout


def test_refusals() -> None:
    write("x = x.relu()", (8, 5))
    assert "would shrink" in check().stderr
    write("x = x.relu()")
    Path("new.py").write_text(Path("new.py").read_text().replace("self.down", "self.out"))
    assert "new.py:build is not old.py:build with larger sizes" in check().stderr
    assert "There is no file 'none.py'" in check(models=("old.py:build", "none.py:build")).stderr
    assert "give both" in check("--output", "x.pt").stderr
    for given in ([], ["old.pt", "--output", "new.pt"], ["--plan", "plan.json"]):
        result = CliRunner().invoke(cli, ["pad", *given])
        assert result.exit_code == 2
        assert "--check OLD NEW" in result.stderr or "Cannot read" in result.stderr
