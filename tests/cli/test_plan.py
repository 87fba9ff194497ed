"""The order in which to make fixes: attention that gains only once its width is padded."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

pytest.importorskip("torch")

ATTENTION = """\
import math
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, tokens):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        seen = torch.tril(torch.ones(tokens, tokens)).triu(-256)
        self.register_buffer("mask", seen.view(1, 1, tokens, tokens))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        att = torch.softmax(att, dim=-1)
        y = (att @ v).transpose(1, 2).contiguous().view(b, t, c)
        x = x + self.out(y)
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def build():
    return nn.Sequential(*(Block(WIDTH, 12, 1024) for _ in range(4)))


def example_inputs():
    return torch.zeros(8, 1024, WIDTH)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "attn.py").write_text(ATTENTION.replace("WIDTH", "516"))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(
        cli, ["attn.py:build", "--isolated", "--gpu", "a100", *arguments], catch_exceptions=False
    )


def entry(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entry, and its metrics on the GPU."""
    [found] = json.loads(run("--format", "json", *arguments).stdout)["entries"]
    return found, found["metrics"]["a100-sxm4-80gb"]


def test_each_fix_is_priced_after_those_before_it(repository: Path) -> None:
    found, metrics = entry()
    plan = found["plan"]
    times = [metrics["step_time_us"], *(fix["step_time_us"]["a100-sxm4-80gb"] for fix in plan)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == metrics["step_time_fixed_us"]
    assert plan[-1]["readiness_percent"]["a100-sxm4-80gb"] == metrics["readiness_fixed_percent"]
    gains = [before - after for before, after in pairwise(times)]
    assert gains[0] == max(gains)


def test_a_gain_that_another_fix_makes_possible_is_in_the_plan(repository: Path) -> None:
    alone = json.loads(run("--format", "json", "--select", "ARC005").stdout)
    assert alone["findings"] == []
    assert alone["summary"]["below_min_gain"] == 1
    plan = entry()[0]["plan"]
    assert [fix["code"] for fix in plan if fix["needs_others"]] == ["ARC005"]
    padded = next(number for number, fix in enumerate(plan) if fix["code"] == "DIM001")
    attention = next(number for number, fix in enumerate(plan) if fix["code"] == "ARC005")
    assert padded < attention
    assert plan[attention]["location"]["path"] == "attn.py"


def test_the_text_has_the_order_and_why_readiness_falls(repository: Path) -> None:
    text = " ".join(run().stdout.split())
    assert "in this order, on a100-sxm4-80gb: 1. attn.py:" in text
    assert "ARC005 manual-attention: " in text
    assert "worth it only after those above" in text
    plan = entry()[0]["plan"]
    shares = [fix["readiness_percent"]["a100-sxm4-80gb"] for fix in plan]
    falls = sum(round(after) < round(before) for before, after in pairwise(shares))
    assert falls >= 1
    assert text.count("more in kernels that are not ready") + text.count("larger share") == falls


def test_a_single_fix_has_no_order(repository: Path) -> None:
    assert "in this order" not in run("--select", "ARC016").stdout


def test_a_plain_causal_mask_is_answered_with_is_causal(repository: Path) -> None:
    (repository / "attn.py").write_text(ATTENTION.replace("WIDTH", "768"))
    [finding] = json.loads(run("--format", "json", "--select", "ARC005").stdout)["findings"]
    assert "(q, k, v, is_causal=True) instead" in finding["fix"]["advice"]
    mask = 'att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))'
    assert mask in ATTENTION
    unmasked = ATTENTION.replace("WIDTH", "768").replace(mask, "att * 1.0")
    (repository / "attn.py").write_text(unmasked)
    [finding] = json.loads(run("--format", "json", "--select", "ARC005").stdout)["findings"]
    assert "scaled_dot_product_attention(q, k, v) instead" in finding["fix"]["advice"]
    dropped = ATTENTION.replace("WIDTH", "768").replace(
        "= torch.softmax(att, dim=-1)", "= self.drop(att.softmax(-1))"
    )
    dropped = dropped.replace("self.norm =", "self.drop = nn.Dropout(0.1)\n        self.norm =")
    (repository / "attn.py").write_text(dropped)
    [finding] = json.loads(run("--format", "json", "--select", "ARC005").stdout)["findings"]
    assert "(q, k, v, is_causal=True, dropout_p=...) instead" in finding["fix"]["advice"]
    (repository / "attn.py").write_text(dropped.replace(" * (1.0 / math.sqrt(k.size(-1)))", ""))
    [finding] = json.loads(run("--format", "json", "--select", "ARC005").stdout)["findings"]
    assert "(q, k, v, is_causal=True, dropout_p=..., scale=...) instead" in finding["fix"]["advice"]
