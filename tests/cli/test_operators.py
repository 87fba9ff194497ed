"""`--operators` in JSON reports, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from tclint.cli.main import cli
from tclint.report.formats.json import schema

pytest.importorskip("torch")

NET = """\
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(1024, 1021), nn.ReLU())


def example_inputs():
    return torch.zeros(8192, 1024)
"""


@pytest.mark.parametrize("flags", [(), ("--precision", "bf16", "--mode", "infer", "--compiled")])
def test_kernels_sum_up_to_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    command = ["net.py:build", "--isolated", "--gpu", "a100,h100", "--format", "json", "--exit-zero", *flags]
    assert "operators" not in json.loads(CliRunner().invoke(cli, command).stdout)["entries"][0]
    document = json.loads(CliRunner().invoke(cli, [*command, "--operators"]).stdout)
    jsonschema.validate(document, schema())
    [entry] = document["entries"]
    assert list(entry["operators"]) == list(entry["metrics"])
    for gpu, kernels in entry["operators"].items():
        total = sum(kernel["time_us"] for kernel in kernels)
        assert total == pytest.approx(entry["metrics"][gpu]["step_time_us"], rel=1e-3)
        ready = sum(kernel["time_us"] for kernel in kernels if kernel["is_efficient"])
        assert 100 * ready / total == pytest.approx(entry["metrics"][gpu]["readiness_percent"], abs=0.1)
        assert {"0"} <= {kernel["module_path"] for kernel in kernels}
