"""AMP001 and AMP006 on labelled scripts: exactly the flagged lines are reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tclint_rules.loss_scaling import RULES

from tclint.config import Settings
from tclint.rule import SourceRule
from tclint.source import lint

FOLDER = Path(__file__).parent / "labelled"
FILES = sorted(FOLDER.glob("*.py"))
LABEL = re.compile(r"(AMP\d{3}): (flag|quiet)")


def labels(path: Path) -> set[tuple[str, int, bool]]:
    return {
        (code, number, verdict == "flag")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for code, verdict in LABEL.findall(line)
    }


def reported(path: Path) -> set[tuple[str, int]]:
    """Lines that findings are about: their own, and those of further backward calls in AMP001."""
    rules = [rule() for rule in RULES if issubclass(rule, SourceRule)]
    result = lint([str(path)], rules, Settings())
    assert not result.skipped
    found = {(finding.code, finding.location.line) for finding in result.findings}
    for finding in result.findings:
        for related in finding.related:
            if "not scaled here either" in related.message:
                found.add((finding.code, related.location.line))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_exactly_the_flagged_lines_are_reported(path: Path) -> None:
    expected = {(code, line) for code, line, flagged in labels(path) if flagged}
    assert reported(path) == expected


@pytest.mark.parametrize("code", ["AMP001", "AMP006"])
def test_there_are_enough_labels_of_both_kinds(code: str) -> None:
    verdicts = [flagged for path in FILES for label, _, flagged in labels(path) if label == code]
    assert sum(verdicts) >= 10
    assert verdicts.count(False) >= 20
