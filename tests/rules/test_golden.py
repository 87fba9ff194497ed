"""Everything that the graph rules say of the fixtures, as reviewed by hand in golden/.

The files hold codes, lines and messages; predicted percentages, which move with every calibration, are
left out, and so are findings near the threshold allowed to come and go: what gains at least twice the
minimum has to be in the file, and what is in the file has to gain at least half of it.

To write the files anew after a change, and then review the difference:

    TCLINT_UPDATE_GOLDEN=1 python -m pytest tests/rules/test_golden.py
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from examples import FIXTURES, context_of, findings_that_count, trace_fixture

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.core.finding import Finding
from tclint.engine.rules.registry import load_rules

GOLDEN = Path(__file__).parent / "golden"
UPDATE = bool(os.environ.get("TCLINT_UPDATE_GOLDEN"))

_PERCENT = re.compile(r"(?:up to )?-?\d+(?:\.\d+)? %( of the step)?(?: \([a-z0-9-]+\))?( on [a-z0-9-]+)?")


@dataclass(frozen=True)
class Case:
    """A fixture, built and priced in one way."""

    fixture: str
    name: str = ""
    build: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """For a well-made model: why a rule is right to fire on it, by code."""
    well_made: bool = False

    @property
    def title(self) -> str:
        return self.name or self.fixture


SKIPPED = ("gpt3_175b",)
"""GPT-2 at other sizes; linted as a whole in test_large_models."""

CASES = [
    Case(path.stem)
    for path in sorted(FIXTURES.glob("*.py"))
    if not path.stem.startswith("train") and path.stem not in SKIPPED
]

_EAGER = (
    "an eager step does run these operators one kernel at a time; torch.compile is PyTorch's own answer, "
    "and the rule is silent once the model is compiled"
)
WELL_MADE = [
    Case(
        "bert_large",
        "bert_large_30528",
        build={"vocab_size": 30528},
        well_made=True,
        reasons={
            "ARC004": "query, key and value are three layers, as in BERT's reference; one would do",
            "ARC005": "attention is written out, scores in memory; MLPerf's BERT uses a fused kernel",
            "ARC016": _EAGER,
        },
    ),
    Case(
        "gpt2",
        "gpt2_50304",
        build={"vocab_size": 50304},
        well_made=True,
        reasons={"ARC016": _EAGER},
    ),
    Case(
        "resnet50",
        "resnet50_channels_last",
        settings={"layout": "channels_last"},
        well_made=True,
        reasons={
            "ARC016": _EAGER,
            "DIM006": "images of three channels are padded on every step; NVIDIA's own recipe stores four",
        },
    ),
]


def lines(context: GraphContext) -> list[str]:
    """One line for each finding a user would see."""
    rules = [rule for rule in load_rules(context.settings) if isinstance(rule, GraphRule)]
    found = [finding for rule in rules for finding in findings_that_count(rule, context)]
    return sorted(
        f"{f.code} {f.level} {_place(f)} "
        f"{_PERCENT.sub('#', f.message)}{'' if f.effect.unknown is None else ' [' + f.effect.unknown + ']'}"
        for f in found
    )


def _place(finding: Finding) -> str:
    """'resnet50.py:69'; a variant is built by a function of the tests, which stands for build_model."""
    path = Path(finding.location.path)
    return f"{path.name}:{finding.location.line}" if path.parent == FIXTURES else "build_model"


def key(line: str) -> str:
    """Code and place: what a finding is, whatever its message says."""
    code, _, place, *_ = line.split(" ")
    return f"{code} {place}"


@pytest.mark.parametrize("case", [*CASES, *WELL_MADE], ids=lambda case: case.title)
def test_findings_are_those_reviewed(case: Case) -> None:
    file = GOLDEN / f"{case.title}.txt"
    context = context_of(trace_fixture(case.fixture, **case.build), **case.settings)
    if UPDATE:
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in lines(context)), encoding="utf-8")
    reviewed = file.read_text(encoding="utf-8").splitlines()
    least = context.settings.min_gain_percent
    certain = lines(context.with_settings(min_gain_percent=2 * least))
    possible = lines(context.with_settings(min_gain_percent=least / 2))
    assert {key(line) for line in certain} <= {key(line) for line in reviewed}
    assert {key(line) for line in reviewed} <= {key(line) for line in possible}
    if case.well_made:
        assert {line.split(" ")[0] for line in (*certain, *reviewed)} <= set(case.reasons)


def test_golden_files_belong_to_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {case.title for case in (*CASES, *WELL_MADE)}
