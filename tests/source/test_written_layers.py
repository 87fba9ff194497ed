"""Attention and projections as source writes them: which are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.rules.registry import find_rule
from tclint.engine.sources.lint import lint
from tclint.source.source_rule import SourceRule

ATTENTION = """\
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, features, rate):
        super().__init__()
        self.scale = features**-0.5
        self.dropout = nn.Dropout(rate)

    def forward(self, q, k, v, mask):
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        {between}
        weights = torch.softmax(scores, dim=-1)
        {after}
        x = torch.matmul(weights, v)
        {end}
"""

PROJECTIONS = """\
from torch import nn

class Block(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.first = nn.Linear(width, 128)
        self.second = nn.Linear(width, 128)

    def forward(self, x):
        return self.first(x) * self.second({given})

{made}
"""


def findings(tmp_path: Path, code: str, source: str) -> int:
    path = tmp_path / "model.py"
    path.write_text(source)
    rules = [rule() for rule in find_rule(code) if issubclass(rule, SourceRule)]
    return len(lint([str(path)], rules, Settings(cache=False)).findings)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 1),
        ({"between": "scores = scores + mask"}, 1),
        ({"after": "weights = self.dropout(weights)"}, 1),
        ({"end": "x = x + mask.bias; return x"}, 1),
        ({"between": "scores = scores + self.positions"}, 0),
        ({"between": "scores += self.mask_bias"}, 0),
        ({"between": "scores = scores - scores.amax()"}, 0),
        ({"after": "self.weights = weights"}, 0),
        ({"end": "return x, weights"}, 0),
        ({"end": "return nn.functional.scaled_dot_product_attention(q, k, v)"}, 0),
    ],
)
def test_attention_that_no_fused_kernel_can_replace_is_not_reported(
    tmp_path: Path, changed: dict[str, str], expected: int
) -> None:
    lines = {"between": "pass", "after": "pass", "end": "return x", **changed}
    assert findings(tmp_path, "ARC005", ATTENTION.format(**lines)) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 1),
        ({"parameters": "width", "made": "block = Block(64)"}, 1),
        ({"parameters": "*, width", "made": "block = Block(width=64)"}, 1),
        ({"parameters": "width"}, 0),
        ({"parameters": "*, width: int"}, 0),
        ({"given": "x * 2"}, 0),
        ({"made": "optimizer = Muon(Block().parameters())"}, 0),
    ],
)
def test_layers_whose_sizes_nothing_tells_are_not_reported(
    tmp_path: Path, changed: dict[str, str], expected: int
) -> None:
    lines = {"parameters": "width=64", "given": "x", "made": "", **changed}
    assert findings(tmp_path, "ARC004", PROJECTIONS.format(**lines)) == expected
