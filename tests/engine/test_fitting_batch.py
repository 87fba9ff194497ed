"""A batch that nobody stated fits the GPU where one does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tclint.cli.main import cli

_MODEL = """
import torch
from torch import nn

class Pictures(nn.Sequential):
    image_size = 1024

    def __init__(self, width=512):
        layers = [nn.Conv2d(3, width, 3)] + [nn.Conv2d(width, width, 3) for _ in range(4)]
        super().__init__(*layers)

class Huge(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(256, 4_000_000), nn.Linear(4_000_000, 256)

    def forward(self, x):
        return self.last(self.first(x))
"""


@pytest.fixture(autouse=True)
def _model(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(_MODEL, encoding="utf-8")


def _entry(target: str, *options: str) -> tuple[int, list[str]]:
    """The batch of the entry, and what is said of it."""
    arguments = [f"model.py:{target}", "--format", "json", "--fail-on", "never", *options]
    found: dict[str, Any] = json.loads(CliRunner().invoke(cli, arguments).stdout)["entries"][0]
    said = [a["what"] for a in found["assumptions"] if a["what"].startswith("batch: ")]
    assert found["metrics"]
    return found["inputs"][0]["shape"][0], said


@pytest.mark.parametrize(
    ("target", "options", "batch", "told"),
    [
        ("Pictures", ("--gpu", "h100"), 8, ""),
        ("Pictures", ("--gpu", "h100", "--gpu", "t4"), 2, "batch: 2, because 8 does not fit"),
        ("Pictures", ("--gpu", "t4", "--batch", "8"), 8, ""),
        ("Pictures", ("--gpu", "t4", "--input", "8,3,1024,1024"), 8, ""),
        ("Huge", ("--gpu", "t4"), 8, ""),  # not even one sample fits
    ],
)
def test_a_batch_that_nobody_stated_fits(
    target: str, options: tuple[str, ...], batch: int, told: str
) -> None:
    found, said = _entry(target, *options)
    assert found == batch
    assert [text[: len(told)] for text in said] == ([told] if told else [])
