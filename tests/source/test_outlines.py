"""Which files rules with an outline have parsed, and that what is kept from them could hold no finding."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.rule_registry import find_rule
from tclint.engine.source_pass import lint
from tclint.source.source_rule import SourceRule

ATTENTION = """\
import torch
from torch import nn

class Attention(nn.Module):
    def forward(self, q, k, v, heads, mask):
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


def outcome(tmp_path: Path, code: str, source: str) -> tuple[int, int]:
    """(files parsed, findings)."""
    path = tmp_path / "model.py"
    path.write_text(source)
    rules = [rule() for rule in find_rule(code) if issubclass(rule, SourceRule)]
    result = lint([str(path)], rules, Settings(cache=False))
    assert result.files == 1
    return result.parsed, len(result.findings)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, (1, 1)),
        ({"between": "scores = scores + mask"}, (1, 1)),
        ({"after": "weights = self.dropout(weights)"}, (1, 1)),
        ({"end": "x = x + mask.bias; return x"}, (1, 1)),
        ({"between": "scores = scores + self.positions"}, (0, 0)),
        ({"between": "scores += self.mask_bias"}, (0, 0)),
        ({"between": "scores = scores - scores.amax()"}, (0, 0)),
        ({"after": "self.weights = weights"}, (0, 0)),
        ({"end": "return x, weights"}, (0, 0)),
        ({"end": "run = flash_attn_varlen"}, (0, 0)),
    ],
)
def test_attention_that_no_fused_kernel_can_replace_is_not_parsed(
    tmp_path: Path, changed: dict[str, str], expected: tuple[int, int]
) -> None:
    lines = {"between": "pass", "after": "pass", "end": "return x", **changed}
    assert outcome(tmp_path, "ARC005", ATTENTION.format(**lines)) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, (1, 1)),
        ({"parameters": "width", "made": "block = Block(64)"}, (1, 1)),
        ({"parameters": "*, width", "made": "block = Block(width=64)"}, (1, 1)),
        ({"parameters": "width"}, (0, 0)),
        ({"parameters": "*, width: int"}, (0, 0)),
        ({"given": "x * 2"}, (0, 0)),
        ({"made": "optimizer = Muon(Block().parameters())"}, (0, 0)),
    ],
)
def test_layers_whose_sizes_nothing_tells_are_not_parsed(
    tmp_path: Path, changed: dict[str, str], expected: tuple[int, int]
) -> None:
    lines = {"parameters": "width=64", "given": "x", "made": "", **changed}
    assert outcome(tmp_path, "ARC004", PROJECTIONS.format(**lines)) == expected


def test_what_python_cannot_parse_is_left_to_the_pass(tmp_path: Path) -> None:
    source = ATTENTION.format(between="print 'two'", after="pass", end="return x")
    path = tmp_path / "old.py"
    path.write_text(source)
    rules = [rule() for rule in find_rule("ARC005") if issubclass(rule, SourceRule)]
    result = lint([str(path)], rules, Settings(cache=False))
    assert "Python 2" in result.findings[0].message


def test_odd_escapes_of_a_file_warn_nobody(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = ATTENTION.format(between="unit = '\\d'", after="pass", end="return x")
        assert outcome(tmp_path, "ARC005", source) == (1, 1)
