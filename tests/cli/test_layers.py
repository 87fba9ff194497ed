"""`--layers`, and what the HTML report says of several models once, from the command line."""

from __future__ import annotations

from pathlib import Path

import in_process
import pytest

pytest.importorskip("torch")

MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(1024)
        self.up = nn.Linear(1024, hidden)
        self.down = nn.Linear(hidden, 1024)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(hidden) for _ in range(6)))
        self.head = nn.Linear(1024, 2048)

    def forward(self, x):
        return self.head(self.blocks(x))


def aligned():
    return Net(4096), torch.zeros(32, 256, 1024)


def odd():
    return Net(4093), torch.zeros(32, 256, 1024)
"""


def tclint(*arguments: str, cwd: Path) -> in_process.Done:
    return in_process.tclint(*arguments, "--isolated", "--exit-zero", cwd=cwd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path


def test_layers_have_shapes_sizes_times_and_tensor_cores(folder: Path) -> None:
    options = ("--gpu", "a100", "--min-gain", "90")
    result = tclint("net.py:odd", *options, "--layers", cwd=folder)
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    (up,) = [row for row in rows if row[:2] == ["blocks.*.up", "(6x):"]]
    assert up[2:4] == ["linear", "32x256x4093"]
    # 6 times 1024 x 4093 weights and 4093 biases; forward, and both products of the backward pass.
    assert up[4:6] == ["25.2", "M"]
    assert up[6:8] == ["1.24", "TFLOP"]
    assert up[-2:] == ["poorly", "(1)"]
    assert any(row[:1] == ["1:"] and "misaligned" in row for row in rows)
    assert any(row[:1] == ["(optimizer)"] for row in rows)
    single = tclint("net.py:odd", *options, "--layers", "-v", cwd=folder).stdout
    assert "blocks.5.up: linear" in single
    assert "blocks.*" not in single.partition("  layers\n")[2]
    assert "  layers\n" not in tclint("net.py:odd", *options, cwd=folder).stdout


def test_models_are_ranked_by_what_is_to_be_gained_and_assumptions_told_once(folder: Path) -> None:
    tclint("net.py:aligned", "net.py:odd", "--gpu", "a100", "--output", "html=report.html", cwd=folder)
    page = (folder / "report.html").read_text()
    table = page.partition("<table id='models'>")[2].partition("</table>")[0]
    assert 0 < table.index("net.py:odd") < table.index("net.py:aligned")
    assumed = page.partition("<h3>Assumed</h3>")[2].partition("</ul>")[0]
    assert assumed.count("AdamW with torch") == 1
    assert "all 2 models" in assumed
    assert page.count("<summary>Layers</summary>") == 2
    assert "title='Largest speed-up if only the work on Tensor Cores got faster'" in page
