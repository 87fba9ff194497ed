"""A batch that nobody stated: one that fits the GPU where one does, and half fills it in training."""

from __future__ import annotations

import json
from pathlib import Path
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

class Words(nn.Module):
    def __init__(self, width=1020):
        super().__init__()
        self.words = nn.Embedding(32000, width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, 32000)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens)))

class Chosen(nn.Module):
    # Works on what a mask or a router chooses.

    def __init__(self):
        super().__init__()
        self.gate, self.words = nn.Linear(64, 2), nn.Linear(64, 64)

    def forward(self, x):
        scores = self.gate(x)
        y = self.words(x[scores[:, 0] > 0.5])
        for choice in range(2):
            y = y + self.words(x[torch.where(scores.argmax(-1) == choice)[0]]).mean()
        return y

class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(64, 64)  # the length comes first

    def forward(self, x):
        return self.rnn(x)[0]
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
        ("Pictures", ("--gpu", "h100"), 8, "batch: 8, because 16 would fill more than half of the memory"),
        ("Pictures", ("--gpu", "h100", "--gpu", "t4"), 2, "batch: 2, because 8 does not fit"),
        ("Pictures", ("--gpu", "t4", "--batch", "8"), 8, ""),
        ("Pictures", ("--gpu", "t4", "--input", "8,3,1024,1024"), 8, ""),
        ("Huge", ("--gpu", "t4"), 8, ""),  # not even one sample fits
        ("Words", ("--gpu", "a100"), 1024, "batch: 1024, with which the step fills less than half of"),
        ("Words", ("--gpu", "t4", "--gpu", "a100"), 512, "batch: 512, with which the step fills half of"),
        ("Words", ("--gpu", "a100", "--mode", "infer"), 8, ""),
        ("Words", ("--gpu", "a100", "--batch", "4"), 4, ""),
        ("Words", ("--gpu", "a100", "--input", "int64[8,128]"), 8, ""),
        ("Steps", ("--gpu", "a100"), 128, ""),
    ],
)
def test_a_batch_that_nobody_stated(target: str, options: tuple[str, ...], batch: int, told: str) -> None:
    found, said = _entry(target, *options)
    assert found == batch
    assert [text[: len(told)] for text in said] == ([told] if told else [])


def test_ranges_of_what_is_guessed_are_those_at_the_batch() -> None:
    arguments = ["model.py:Words", "--gpu", "a100", "--format", "json", "--fail-on", "never"]
    (entry,) = json.loads(CliRunner().invoke(cli, arguments).stdout)["entries"]
    step = entry["metrics"]["a100-sxm4-80gb"]
    shortest, longest = step["step_time_range_us"]
    assert longest / shortest == pytest.approx(32, rel=0.2)  # lengths of 32 to 1024, none of which waits
    assert entry["settings"] == {}


def test_what_data_choose_grows_with_the_batch() -> None:
    def flops(*options: str) -> int:
        arguments = ["model.py:Chosen", "--gpu", "a100", "--format", "json", "--fail-on", "never", *options]
        (entry,) = json.loads(CliRunner().invoke(cli, arguments).stdout)["entries"]
        assert entry["inputs"][0]["shape"] == [1024, 64]
        return int(entry["flops"])

    assert flops() == flops("--input", "1024,64")


def test_half_of_the_memory() -> None:
    arguments = ["model.py:Words", "--gpu", "t4", "--format", "json", "--fail-on", "never"]
    (entry,) = json.loads(CliRunner().invoke(cli, arguments).stdout)["entries"]
    assert 3.75 * 2**30 < entry["metrics"]["t4"]["memory_bytes"] <= 7.5 * 2**30


def test_fixes_are_planned_at_the_batch(tmp_path: Path) -> None:
    # Model and fixed model are run on real numbers, which takes ten times as long with a large vocabulary.
    (tmp_path / "model.py").write_text(_MODEL.replace("32000", "2000"), encoding="utf-8")
    assert _entry("Words", "--gpu", "a100")[0] == 1024
    ran = CliRunner().invoke(cli, ["fix", "model.py:Words", "--gpu", "a100", "--diff"])
    assert "-    def __init__(self, width=1020):" in ran.stdout


def test_what_is_said_of_the_inputs_is_what_was_priced() -> None:
    arguments = ["model.py:Words", "--gpu", "a100", "--format", "json", "--fail-on", "never"]
    (entry,) = json.loads(CliRunner().invoke(cli, arguments).stdout)["entries"]
    said = [a["what"] for a in entry["assumptions"] if "--input" in a["what"]]
    assert len(said) == 1
    assert "tokens = int64[1024,128]" in said[0]
    assert "--input 'tokens=int64[1024,128]'" in said[0]
    assert "[8," not in said[0]
