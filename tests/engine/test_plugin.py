"""A third party's rule package, installed as its users would, is found and runs beside ours."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    site = tmp_path_factory.mktemp("site")
    # A copy, because building in place would leave build/ and egg-info in the checkout.
    source = tmp_path_factory.mktemp("plugin") / "plugin"
    copy = [sys.executable, "-c", "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2])"]
    subprocess.run([*copy, str(PLUGIN), str(source)], check=True)
    isolation = [] if importlib.util.find_spec("setuptools") is None else ["--no-build-isolation"]
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *isolation, "--target", str(site)]
    subprocess.run([*install, str(source)], check=True, capture_output=True)
    return {**os.environ, "PYTHONPATH": str(site)}


def test_its_rules_are_listed_and_explained(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tclint", "explain", "EXA001"]
    page = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "large-dropout" in page
    assert "Our handbook, chapter 3" in page


def test_its_rules_find_what_they_should(environment: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "m.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "tclint", "m.py:build_model", "m.py", "--select", "EXA"]
    done = subprocess.run(
        [*command, "--format", "json"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {(item["code"], item["location"]["line"]) for item in json.loads(done.stdout)["findings"]}
    assert found == {("EXA001", 9), ("EXA002", 14)}


def test_its_own_tests_pass(environment: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PLUGIN / "tests")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("..")
