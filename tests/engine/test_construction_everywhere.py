"""A class that needs arguments is made as its project makes it, whichever way it comes in."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tclint
from tclint.cli.main import cli
from tclint.core.errors import TargetError

pytest.importorskip("torch")

MODEL = """
import torch
from torch import nn


class Bridge(nn.Module):
    def __init__(self, span, piers=1):
        super().__init__()
        self.piers = nn.ModuleList(nn.Linear(span, span, bias=False) for _ in range(piers))
        self.deck = nn.Linear(span, 1001, bias=False)

    def forward(self, x):
        for pier in self.piers:
            x = pier(x).relu()
        return self.deck(x)


def example_inputs(span=512):
    return torch.empty(4096, span)
"""
PARAMETERS = 2 * 512 * 512 + 512 * 1001
TARGET = "bridge.py:Bridge"
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bridge.py").write_text(MODEL)
    (tmp_path / "train.py").write_text("from bridge import Bridge\n\nbridge = Bridge(512, piers=2)\n")
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)

    return invoke


@pytest.fixture
def bridge(project: Path) -> Any:
    spec = importlib.util.spec_from_file_location("bridge", project / "bridge.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "bridge", module)
        spec.loader.exec_module(module)
        yield module.Bridge


def test_fix_plans_and_makes_its_edits(run: Run, project: Path) -> None:
    result = run("fix", TARGET, "--unsafe-fixes")
    assert result.exit_code == 0, result.output
    assert "proved" in result.output
    assert "1024" in (project / "bridge.py").read_text()


def test_sweep_prices_every_point(run: Run) -> None:
    result = run("sweep", TARGET, "--arg", "piers=2,3,4", "--format", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["errors"] == []
    assert found["assumptions"] == [f"{TARGET} is made with span=512, as its project does"]


def test_fleet_lints_it(run: Run) -> None:
    result = run("fleet", TARGET)
    assert result.exit_code in (0, 1), result.output
    (summary,) = [json.loads(line) for line in result.stdout.splitlines() if '"parameters"' in line][:1]
    assert summary["value"] == PARAMETERS


def test_patterns_name_it(run: Run) -> None:
    result = run("fleet", "bridge.py:*")
    assert result.exit_code in (0, 1), result.output
    assert '"bridge.py:Bridge"' in result.stdout


def test_init_declares_it(run: Run) -> None:
    assert '\n  "bridge.py:Bridge",  # class, line 6\n' in run("init", "--print").stdout


def test_a_padded_copy_is_made_as_the_original_is(run: Run, project: Path) -> None:
    (project / "padded.py").write_text(MODEL.replace("1001", "1008"))
    result = run("pad", "--check", TARGET, "padded.py:Bridge")
    assert "1001 -> 1008" in result.output, result.output


def test_a_declared_model(run: Run, project: Path) -> None:
    (project / "pyproject.toml").write_text(f'[tool.tclint]\nmodels = ["{TARGET}"]\n')
    result = run("check", "--models", "--format", "json")
    assert json.loads(result.stdout)["entries"][0]["parameters"] == PARAMETERS


def test_explain(run: Run) -> None:
    result = run("explain-cost", TARGET, "--op", "deck")
    assert result.exit_code == 0, result.output


def test_python(bridge: Any) -> None:
    assert tclint.trace(bridge).parameter_count == PARAMETERS
    assert tclint.check(bridge).entries[0].parameters == PARAMETERS
    assert tclint.estimate(bridge).step_time_us > 0
    assert tclint.trace(bridge, arg=["piers=1"]).parameter_count == PARAMETERS - 512 * 512


def test_arguments_beside_inputs(bridge: Any) -> None:
    import torch

    x = torch.empty(8, 512, device="meta")
    assert tclint.trace(bridge, x).parameter_count == PARAMETERS
    assert tclint.trace(bridge, x, arg=["span=512"]).parameter_count == PARAMETERS - 512 * 512


def test_inputs_that_are_handed_over(bridge: Any, assert_ready: Callable[..., Any]) -> None:
    import torch

    x = torch.empty(8, 512, device="meta")
    assert tclint.check(bridge, inputs=x).entries[0].parameters == PARAMETERS
    assert assert_ready(bridge, x, min_readiness=0).entries[0].parameters == PARAMETERS
    lighter = tclint.check(bridge, inputs=x, arg=["piers=1"])
    assert lighter.entries[0].parameters == PARAMETERS - 512 * 512


def test_where_no_program_makes_it_the_error_is_that_of_the_code(bridge: Any, project: Path) -> None:
    (project / "train.py").unlink()
    with pytest.raises(TargetError, match="missing 1 required positional argument: 'span'") as caught:
        tclint.trace(bridge)
    assert isinstance(caught.value.__cause__, TypeError)


def test_no_program_is_read_for_a_model_that_is_made_already(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bridge(512)
    model.deck = None

    def search(*_: object) -> None:
        pytest.fail("nothing can be made again")

    monkeypatch.setattr("tclint.engine.script.as_built.constructions", search)
    [error] = tclint.check(model).errors
    assert "'NoneType' object is not callable" in error.message
