"""Models that compile themselves are priced as compiled, and not told to compile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tclint import check
from tclint.config.settings import Settings
from tclint.report.formats.text import render
from tclint.report.render import Style

MODEL = """
import torch
from torch import nn


def block():
    return nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024), nn.GELU())


def net():
    return nn.Sequential(*[block() for _ in range(6)])


class Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    @torch.compile(fullgraph=True)
    def forward(self, x):
        return self.net(x)


def build_model():
    model = net()
    {body}
    return model


def example_inputs():
    return torch.empty(4096, 1024)
"""

COMPILES = {
    "call": "model = torch.compile(model)",
    "method": "model.compile(mode='max-autotune')",
    "forward": "model.forward = torch.compile(model.forward)",
    "every block": "for part in model: part.compile()",
    "decorated": "model = Decorated()",
}
DOES_NOT = {
    "plain": "pass",
    "disabled": "model = torch.compile(model, disable=True)",
    "runs as it is": "model = torch.compile(model, backend='aot_eager')",
    "a function": "torch.compile(torch.nn.functional.gelu)",
}


def linted(tmp_path: Path, body: str, settings: Settings | None = None) -> tuple[str, set[str]]:
    path = tmp_path / "model.py"
    path.write_text(MODEL.replace("{body}", body))
    report = check([f"{path}:build_model"], settings)
    return render(report, Style(width=400)), {finding.code for finding in report.findings}


@pytest.mark.parametrize("body", COMPILES.values(), ids=COMPILES)
def test_a_builder_that_compiles_is_priced_as_compiled(tmp_path: Path, body: str) -> None:
    text, codes = linted(tmp_path, body)
    assert ", compiled)" in text
    assert "assumed: compiled: yes" in text
    assert "ARC016" not in codes


@pytest.mark.parametrize("body", DOES_NOT.values(), ids=DOES_NOT)
def test_other_builders_are_priced_as_eager_and_told_to_compile(tmp_path: Path, body: str) -> None:
    text, codes = linted(tmp_path, body)
    assert "compiled" not in text
    assert "ARC016" in codes


def test_one_compiled_block_is_said_and_the_step_stays_eager(tmp_path: Path) -> None:
    text, codes = linted(tmp_path, "model[2] = torch.compile(model[2])")
    assert "torch.compile is called on 2 alone" in text
    assert ", compiled)" not in text
    assert "ARC016" in codes


def test_the_user_may_ask_for_the_eager_step(tmp_path: Path) -> None:
    settings = Settings(compiled=False, explicit=frozenset({"compiled"}))
    text, codes = linted(tmp_path, COMPILES["call"], settings)
    assert "compiled" not in text
    assert "ARC016" in codes


def test_a_compiled_model_as_an_object() -> None:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(3)]
    by_call = torch.compile(nn.Sequential(*layers), backend="eager")  # Inductor takes seconds to import
    by_method = nn.Sequential(*layers)
    by_method.compile(backend="eager")
    for model in (by_call, by_method):
        said = [assumption.what for assumption in check([model]).entries[0].assumptions]
        assert any(what.startswith("compiled: yes") for what in said)
