"""`tclint diff` as a gate of two reports of one repository, before and after a change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

pytest.importorskip("torch")

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(1024, width)
        self.down = nn.Linear(width, 1024)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def example_inputs():
    return torch.zeros(4096, 1024)


def build():
    return Net({first})


def build_other():
    return Net({second})
"""

Lint = Callable[[str, int, int], None]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments], catch_exceptions=False)


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    monkeypatch.chdir(tmp_path)

    def made(report: str, first: int, second: int, *flags: str) -> None:
        Path("net.py").write_text(NET.format(first=first, second=second))
        targets = ("net.py:build", "net.py:build_other", "--gpu", "a100")
        result = run(*targets, "--exit-zero", "--output", f"json={report}", *flags)
        assert result.exit_code == 0, result.stderr

    return made


def test_a_faster_model_passes_and_a_slower_one_is_named_once(lint: Lint) -> None:
    lint("slow.json", 1021, 512)
    lint("fast.json", 1024, 512)
    passed = run("diff", "slow.json", "fast.json")
    lines = passed.stdout.splitlines()
    assert passed.exit_code == 0
    assert lines[0].startswith("passed; 0 new, 1 fixed, 0 changed, ")
    assert lines[1].startswith("  net.py:build, a100-sxm4-80gb, fp16, train: step ")
    assert "regression" not in passed.stdout
    assert "tensor_core_time_percent" in passed.stdout.split("for information:")[1]

    failed = run("diff", "fast.json", "slow.json")
    lines = failed.stdout.splitlines()
    assert failed.exit_code == 1
    assert lines[0].startswith("failed: 1 regression; 1 new, 0 fixed, 0 changed, ")
    assert lines[1].startswith("  regression: net.py:build: step ")
    assert "new warning: DIM001" in lines[1]
    assert failed.stdout.count("regression: ") == 1
    assert "build_other" not in failed.stdout


def test_the_budget_of_the_project_decides(lint: Lint) -> None:
    lint("old.json", 1024, 512)
    lint("new.json", 1088, 512)
    assert run("diff", "old.json", "new.json").exit_code == 1
    config = Path("pyproject.toml")
    config.write_text("[tool.tclint.budget]\nstep = '20%'\nmemory = 20\n")
    assert run("diff", "old.json", "new.json").exit_code == 0
    assert run("diff", "old.json", "new.json", "--threshold", "1").exit_code == 1
    assert run("diff", "old.json", "new.json", "--isolated").exit_code == 1

    lint("worse.json", 1021, 512)
    config.write_text("[tool.tclint.budget]\nstep = 500\nreadiness = 100\nmemory = 20\n")
    assert "new warning: DIM001" in run("diff", "old.json", "worse.json").stdout
    config.write_text(config.read_text() + "new-findings = 1\n")
    assert run("diff", "old.json", "worse.json").exit_code == 0
    for wrong, said in (("steps = 1", "Did you mean 'step'?"), ("step = -1", "has 'step', which expects 0")):
        config.write_text(f"[tool.tclint.budget]\n{wrong}\n")
        result = run("diff", "old.json", "new.json")
        assert result.exit_code == 2
        assert "pyproject.toml:1: 'budget' " in result.stderr
        assert said in result.stderr


def test_a_finding_is_new_of_the_models_that_it_is_new_of(lint: Lint) -> None:
    lint("one.json", 1024, 1021)
    lint("both.json", 1021, 1021)
    failed = run("diff", "one.json", "both.json", "--threshold", "500%")
    assert failed.exit_code == 1
    assert "1 new, 0 fixed" in failed.stdout
    assert "regression: net.py:build: new warning: DIM001" in failed.stdout
    assert "0 new, 1 fixed" in run("diff", "both.json", "one.json").stdout


def test_the_precision_that_is_run_counts(lint: Lint) -> None:
    lint("fp32.json", 1024, 1024, "--precision", "fp32")
    lint("bf16.json", 1024, 1024, "--precision", "bf16")
    found = run("diff", "fp32.json", "bf16.json")
    assert found.exit_code == 0
    assert "note: net.py:build ran in fp32 and now runs in bf16" in found.stdout
    assert run("diff", "bf16.json", "fp32.json").exit_code == 1
