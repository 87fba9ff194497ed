"""Findings on a width name the line that sets it, where layers use it by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import tclint
from tclint.config.settings import Settings

pytest.importorskip("torch")

MODEL = """\
import torch
from torch import nn

from config import Config


class Net(nn.Module):
    def __init__(self, config=Config()):
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x):
        return self.down(self.up(x))


def build():
    return nn.Sequential(nn.Embedding(512, Config.width), Net(), nn.Linear(Config.width, 512))


def example_inputs():
    return torch.zeros(16, 1024, dtype=torch.int64)
"""
CONFIG = "class Config:\n    width: int = 1001\n"
UNRELATED = "width = 1001\n"


def related(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> list[str]:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    report = tclint.check("model.py:build", Settings(select=("DIM001",), gpus=("a100",)))
    (finding,) = report.findings
    return [f"{one.location.path}:{one.location.line} {one.message}" for one in finding.related]


def test_the_number_is_named_where_an_imported_file_sets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = related(tmp_path, monkeypatch, model=MODEL, config=CONFIG, train=UNRELATED)
    assert found[0] == "config.py:2 `width` is 1001 here"
    assert not any(line.startswith("train.py") for line in found)


def test_a_number_with_two_names_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = related(tmp_path, monkeypatch, model=MODEL, config=CONFIG + "    classes: int = 1001\n")
    assert not any(" here" in line for line in found)


def test_the_line_of_the_finding_is_not_named_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import torch\nfrom torch import nn\n\n\ndef build():\n"
        "    first = nn.Linear(512, out_features=1001)\n"
        "    return nn.Sequential(first, nn.Linear(first.out_features, 512))\n\n\n"
        "def example_inputs():\n    return torch.zeros(16384, 512)\n"
    )
    assert not any("is 1001 here" in line for line in related(tmp_path, monkeypatch, model=text))
    apart = text.replace("(512, out", "(\n        512,\n        out")
    assert "model.py:8 `out_features` is 1001 here" in related(tmp_path, monkeypatch, model=apart)


def test_widths_of_one_size_change_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """784 of 7 heads cannot become 768: the residual stream alone could, but one number sets both."""
    (tmp_path / "model.py").write_text(HEADS)
    monkeypatch.chdir(tmp_path)
    for heads, found in ((7, False), (8, True)):
        report = tclint.check(
            "model.py:build",
            Settings(select=("DIM010", "DIM011"), gpus=("a100",), arguments=(f"heads={heads}",)),
        )
        assert any(finding.evidence["sizes"] == [[784, 768]] for finding in report.findings) is found


HEADS = """\
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(b, t, c))


def build(heads):
    blocks = [Block(784, heads) for _ in range(2)]
    return nn.Sequential(nn.Embedding(32064, 784), *blocks, nn.Linear(784, 32064))


def example_inputs():
    return torch.zeros(24, 1000, dtype=torch.int64)
"""
