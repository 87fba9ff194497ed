"""A third party's rule package, installed as its users would, is found and runs beside ours."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import tclint

from tclint.testing import check_rule

PLUGIN = Path(__file__).parents[2] / "fixtures" / "plugin"

PROGRAM = """
import torch
from torch import nn


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 64),
        nn.Dropout(0.9),
    )


def train(model, loss):
    loss.backward()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where pip has installed it."""
    site = tmp_path_factory.mktemp("site")
    # A copy, because building in place would leave build/ and egg-info in the checkout.
    source = tmp_path_factory.mktemp("plugin") / "plugin"
    copy = [sys.executable, "-c", "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2])"]
    subprocess.run([*copy, str(PLUGIN), str(source)], check=True)
    isolation = [] if importlib.util.find_spec("setuptools") is None else ["--no-build-isolation"]
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *isolation, "--target", str(site)]
    subprocess.run([*install, str(source)], check=True, capture_output=True)
    return site


@pytest.fixture(autouse=True)
def _installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))


def test_its_rules_are_listed_and_explained() -> None:
    page = tclint("explain", "EXA001").stdout
    assert "large-dropout" in page
    assert "Our handbook, chapter 3" in page


def test_its_rules_find_what_they_should(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "m.py").write_text(PROGRAM)
    done = tclint("m.py:build_model", "m.py", "--select", "EXA", "--format", "json", cwd=tmp_path)
    found = {(item["code"], item["location"]["line"]) for item in json.loads(done.stdout)["findings"]}
    assert found == {("EXA001", 9), ("EXA002", 14)}


def test_its_own_tests_pass() -> None:
    """What fixtures/plugin/tests does, in this process."""
    pytest.importorskip("torch")
    rules = importlib.import_module("tclint_example_rules").RULES
    assert len(rules) == 2
    for rule in rules:
        check_rule(rule, PLUGIN / "examples" / rule.code)
