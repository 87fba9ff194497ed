"""Every finding on a model names it, in every format; what two targets show alike is one finding."""

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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(510, 2050)
        self.second = nn.Linear(2050, 510)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)) * 2)


def example_inputs():
    return torch.zeros(4096, 510)


def build():
    return Net()
"""
TIMM = """\
from timm.models import Net

def is_model(name):
    return name in ("small", "large")

def list_models():
    return ["small", "large"]

def create_model(name, pretrained):
    return Net()
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "net.py").write_text(NET)
    package = tmp_path / "installed" / "site-packages" / "timm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TIMM)
    (package / "models.py").write_text(NET)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--isolated", "--gpu", "a100"], catch_exceptions=False)


def found(*targets: str) -> list[dict[str, Any]]:
    report = json.loads(run(*targets, "--format", "json", "--min-gain", "0").stdout)
    assert not report["errors"]
    findings: list[dict[str, Any]] = report["findings"]
    return findings


def test_equal_findings_are_one_that_lists_its_targets(repository: Path) -> None:
    both = found("net.py:build", "net.py:Net")
    assert len(both) == len(found("net.py:Net")) > 0
    assert {(one["target"], *one["targets"]) for one in both} == {
        ("net.py:build", "net.py:build", "net.py:Net")
    }
    (repository / "other.py").write_text(NET.replace("2050", "4100"))
    assert {tuple(one["targets"]) for one in found("net.py:Net", "other.py:Net")} == {
        ("net.py:Net",),
        ("other.py:Net",),
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("text", "in net.py:build and net.py:Net\n"),
        ("markdown", "net.py:build and net.py:Net"),
        ("github", " of net.py%3Abuild and net.py%3ANet"),
        ("jsonl", '"targets": ["net.py:build", "net.py:Net"]'),
        ("html", '"net.py:build and net.py:Net"'),
    ],
)
def test_every_format_names_the_models(repository: Path, name: str, said: str) -> None:
    assert said in run("net.py:build", "net.py:Net", "--format", name).stdout


def test_sarif_has_them_as_logical_locations(repository: Path) -> None:
    log = json.loads(run("net.py:build", "net.py:Net", "--format", "sarif", "--min-gain", "0").stdout)
    results = [result for part in log["runs"] for result in part["results"]]
    assert len(results) == len(found("net.py:Net"))
    for result in results:
        [location] = result["locations"]
        names = [(one["fullyQualifiedName"], one["kind"]) for one in location["logicalLocations"]]
        assert names[-2:] == [("net.py:build", "module"), ("net.py:Net", "module")]


def test_a_baseline_accepts_them_for_each_target(repository: Path) -> None:
    assert run("baseline", "write", "net.py:build", "net.py:Net", "--baseline", "known.json").exit_code == 0
    for targets in (["net.py:Net"], ["net.py:build"], ["net.py:Net", "net.py:build"]):
        assert run(*targets, "--baseline", "known.json").exit_code == 0


def test_a_model_of_a_library_has_its_layer_and_the_librarys_line(repository: Path) -> None:
    findings = found("timm:small", "timm:large")
    assert {tuple(one["targets"]) for one in findings} == {("timm:small", "timm:large")}
    lines = NET.splitlines()
    for one in findings:
        assert one["location"]["path"].endswith("site-packages/timm/models.py")
        line = lines[one["location"]["line"] - 1]
        module_path = one["location"]["module_path"]
        assert line == "class Net(nn.Module):" if module_path is None else f"self.{module_path} =" in line
    assert None in {one["location"]["module_path"] for one in findings}
