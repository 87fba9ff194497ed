"""Rules on mixed precision on labelled scripts: exactly the flagged lines are reported."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
_spec = importlib.util.spec_from_file_location("source_labels", ROOT / "benchmarks" / "source_labels.py")
assert _spec is not None
assert _spec.loader is not None
source_labels = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(source_labels)

FILES = sorted(source_labels.DEFAULT_FOLDER.rglob("*.py"))
LABELS = {path: source_labels.labels(path) for path in FILES}
CODES = {code for labels in LABELS.values() for code, _ in labels}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_exactly_the_flagged_lines_are_reported(path: Path) -> None:
    expected = {place for place, flagged in LABELS[path].items() if flagged}
    assert source_labels.reported(path, source_labels.checked_in(LABELS[path], CODES)) == expected


def test_there_are_enough_labels_of_both_kinds() -> None:
    verdicts = [flagged for labels in LABELS.values() for flagged in labels.values()]
    assert len(verdicts) >= 250
    assert sum(verdicts) >= 80
    assert verdicts.count(False) >= 125


@pytest.mark.parametrize(
    "code",
    [
        *("AMP001", "AMP003", "AMP004", "AMP005", "AMP006", "AMP007", "AMP008", "AMP010", "AMP013", "AMP014"),
        *("ARC001", "FMT001"),
    ],
)
def test_rules_of_the_first_tier_have_both_kinds(code: str) -> None:
    counts = Counter(
        flagged for labels in LABELS.values() for (label, _), flagged in labels.items() if label == code
    )
    assert counts[True] >= 3
    assert counts[False] >= 3
