"""Every rule's examples in fixtures/rules: flagged, fixed or left alone, as their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.core.rule import Rule
from tclint.engine.rules.registry import all_rules
from tclint.source.source_rule import SourceRule
from tclint.testing import check_rule, examples

FOLDER = Path(__file__).parents[2] / "fixtures" / "rules"
RULES = all_rules()
TRACED = {rule.code for rule in RULES if not issubclass(rule, SourceRule)}


def folder_of(rule: type[Rule]) -> Path:
    """The folder of a rule's examples; the source side of a rule that also reads traced models has
    its own."""
    folder = FOLDER / rule.code
    return folder / "source" if issubclass(rule, SourceRule) and rule.code in TRACED else folder


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        pytest.param(rule, path, id=f"{path.relative_to(FOLDER).with_suffix('')}")
        for rule in RULES
        for path in sorted(folder_of(rule).glob("*valid_*.py"))
        if not path.name.endswith(".fixed.py")
    ],
)
def test_example(rule: type[Rule], path: Path) -> None:
    check_rule(rule, path)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_has_examples_of_both_kinds(rule: type[Rule]) -> None:
    found = examples(folder_of(rule))
    assert sum(example.flagged for example in found) >= 3
    assert sum(not example.flagged for example in found) >= 3
    reasons = [(example.flagged, example.reason) for example in found]
    assert len(set(reasons)) == len(reasons)


def test_no_folder_is_left_over() -> None:
    expected = {folder_of(rule) for rule in RULES}
    assert {path.parent for path in FOLDER.rglob("*") if path.is_file() and path.suffix == ".py"} == expected
