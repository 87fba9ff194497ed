"""`tclint fix` as a user types it: the step that it promises is the one that the written files have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import tclint

torch = pytest.importorskip("torch")

MODEL = """\
import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 770
HEADS = 7


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(x)))


class Language(nn.Module):
    def __init__(self, tokens=32003, width=WIDTH, heads=HEADS):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.block = Block(width, heads)
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, ids):
        return self.head(self.block(self.tokens(ids)))


def build():
    return Language()


def example_inputs():
    return torch.zeros(8, 1024, dtype=torch.long)
"""


def fixed(folder: Path, *options: str) -> dict[str, Any]:
    """The plan of the model's fixes, which are written."""
    result = tclint(
        "fix", "model.py:build", "--unsafe-fixes", "--plan", "plan.json", *OPTIONS, *options, cwd=folder
    )
    assert result.returncode == 0, result.stderr
    plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return plan


OPTIONS = ("--gpu", "a100", "--precision", "bf16", "--isolated")


def test_the_promised_step_is_the_linted_one(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    plan = fixed(tmp_path)
    assert all(step["proved"] for step in plan["steps"])
    linted = json.loads(tclint("model.py:build", "--format", "json", *OPTIONS, cwd=tmp_path).stdout)
    [metrics] = linted["entries"][0]["metrics"].values()
    [promised] = plan["steps"][-1]["step_time_us"].values()
    assert metrics["step_time_us"] == pytest.approx(promised, rel=0.005)
    assert any(step["cuts_us"] for step in plan["steps"])
    # Down and sideways: fewer parameters, and heads of a size that fused kernels are made for.
    written = (tmp_path / "model.py").read_text()
    assert "WIDTH = 768\nHEADS = 12\n" in written
    assert "(tokens + 63) // 64 * 64" in written
    codes = {step["code"] for step in plan["steps"]}
    assert not codes & {finding["code"] for finding in linted["findings"]}


def test_saved_weights_are_carried_over_where_the_architecture_is_kept(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom torch import nn\n\nWIDTH = 515\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 256))\n\n\n"
        "def example_inputs():\n    return torch.zeros(4096, 256)\n"
    )
    (tmp_path / "model.py").write_text(text)
    layers = torch.nn.Linear(256, 515), torch.nn.ReLU(), torch.nn.Linear(515, 256)
    torch.save(torch.nn.Sequential(*layers).state_dict(), tmp_path / "old.pt")
    pad = ("pad", "old.pt", "--plan", "plan.json", "--output", "new.pt")
    plan = tclint("fix", "model.py:build", "--plan", "plan.json", *OPTIONS, cwd=tmp_path)
    assert "another architecture" in plan.stdout
    refused = tclint(*pad, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--keep-architecture" in refused.stderr
    [step] = fixed(tmp_path, "--keep-architecture")["steps"]
    [(old, width)] = step["sizes"]
    assert old == 515 < width
    padded = tclint(*pad, cwd=tmp_path)
    assert padded.returncode == 0, padded.stderr
    layers = torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, 256)
    torch.nn.Sequential(*layers).load_state_dict(torch.load(tmp_path / "new.pt"))
    assert f"WIDTH = {width}\n" in (tmp_path / "model.py").read_text()


def test_only_models_keep_an_architecture(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    result = tclint("fix", "train.py", "--keep-architecture", cwd=tmp_path)
    assert result.returncode == 2
    assert "model.py:build_model" in result.stderr


REFUSED = """\
import torch
from torch import nn

WIDTHS = [int(text) for text in "1001 512".split()]
HIDDEN = 1003


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Sequential(nn.Linear(1024, WIDTHS[0]), nn.ReLU(), nn.Linear(WIDTHS[0], 1024))
        self.up = nn.Linear(1024, HIDDEN)
        self.down = nn.Linear(HIDDEN, 512)
        self.heads = nn.ModuleList([nn.Linear(512, 1005)])

    def forward(self, x):
        y = self.up(self.read(x))
        assert y.shape[-1] == 17 * 59
        return [head(self.down(y)) for head in self.heads][0]


def build():
    return Net()


def example_inputs():
    return torch.zeros(8192, 1024)
"""


def test_a_refusal_says_which_line_and_why(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(REFUSED)
    tclint("fix", "model.py:build", "--plan", "plan.json", *OPTIONS, cwd=tmp_path)
    steps = json.loads((tmp_path / "plan.json").read_text())["steps"]
    reasons = {step["module_path"].partition(".")[0]: step["reason"] for step in steps}
    assert reasons["read"] == "no file that it reads writes the size"
    assert reasons.get("up", reasons.get("down", "")).startswith(
        "editing model.py:5 does not give the planned model: The forward of model.py:build raised "
        "AssertionError: assert y.shape[-1] == 17 * 59 (model.py:18)"
    )
    assert reasons["heads"].endswith("cannot be cut back: model.py:19 does not call it as self.heads")
