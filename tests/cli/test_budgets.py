"""Absolute budgets of declared models, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import tclint

pytest.importorskip("torch")

MODEL = """\
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))


def example_inputs():
    return torch.zeros(4096, 1024)
"""


def project(folder: Path, budget: str, models: str = "model.py:build") -> Path:
    (folder / "model.py").write_text(MODEL)
    head = f'[tool.tclint]\nmodels = ["{models}"]\ngpu = ["a100", "h100"]\nmin-gain = 90\n'
    (folder / "pyproject.toml").write_text(f'{head}[tool.tclint.budget."model.py:build"]\n{budget}\n')
    return folder


def test_a_model_over_its_budget_fails_every_run_that_lints_it(tmp_path: Path) -> None:
    folder = project(tmp_path, "step_ms = { h100 = 0.001 }\nreadiness = 100\nmemory-gib = 0.001")
    inner = folder / "scripts"
    inner.mkdir()
    for arguments, cwd in (
        (("--models",), folder),
        (("model.py:build",), folder),
        (("../model.py:build", "--select", "DIM"), inner),
    ):
        result = tclint("check", *arguments, "--format", "json", cwd=cwd)
        assert result.returncode == 1, result.stderr
        (finding,) = json.loads(result.stdout)["findings"]
        assert (finding["code"], finding["level"]) == ("TCL005", "error")
        said = finding["evidence"]["exceeded"]
        assert sum("a step of" in text for text in said) == 1
        assert (
            "on h100-sxm5-80gb, where 1.00 us are allowed"
            in said[[("a step" in t) for t in said].index(True)]
        )
        assert sum("a readiness of" in text for text in said) == 2
        assert sum("of memory on" in text for text in said) == 2
        assert finding["location"]["path"].endswith("model.py")
    result = tclint("check", "--models", "--fail-on", "never", cwd=folder)
    assert result.returncode == 0
    assert "error TCL005 over-budget" in result.stdout
    assert "unknown" not in result.stdout.partition("TCL005")[2].partition("\n\n")[0]


def test_a_model_within_its_budget_passes_and_no_baseline_accepts_more(tmp_path: Path) -> None:
    folder = project(tmp_path, "step-ms = 100\nreadiness = 0.1\nmemory-gib = 10")
    assert tclint("check", "--models", cwd=folder).returncode == 0
    project(tmp_path, "step-ms = 0.001")
    assert tclint("baseline", "write", "--models", cwd=folder).returncode == 0
    result = tclint("check", "--models", "--baseline", "tclint-baseline.json", cwd=folder)
    assert result.returncode == 1
    assert "TCL005" in result.stdout


@pytest.mark.parametrize(
    ("budget", "models", "words"),
    [
        ("step-mss = 3", "model.py:build", "step-ms"),
        ("step-ms = 0", "model.py:build", "a number above 0, or one per GPU"),
        ("step-ms = {}", "model.py:build", "a number above 0, or one per GPU"),
        ("readiness = true", "model.py:build", "a number above 0"),
        ("step-ms = { a1000 = 3 }", "model.py:build", "a1000"),
        ("step-ms = 3", "model.py:built", "which is not among 'models'"),
    ],
)
def test_a_wrong_budget_is_one_sentence(tmp_path: Path, budget: str, models: str, words: str) -> None:
    result = tclint("check", "model.py:build", cwd=project(tmp_path, budget, models))
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not result.stderr.rstrip().endswith(("..", "?."))
