"""Every rule's examples: flagged where they should be, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import check_example

from tclint.analysis.graph_rule import GraphRule
from tclint.core.rule import Example
from tclint.engine.rule_registry import all_rules

GRAPH_RULES = [rule for rule in all_rules() if issubclass(rule, GraphRule)]


def cases(kind: str) -> list[object]:
    return [
        pytest.param(rule, example, id=f"{rule.code}-{position}")
        for rule in GRAPH_RULES
        for position, example in enumerate(getattr(rule, kind))
    ]


@pytest.mark.parametrize(("rule", "example"), cases("invalid"))
def test_invalid_example_is_flagged_where_it_is_written(
    rule: type[GraphRule], example: Example, tmp_path: Path
) -> None:
    found = check_example(rule, example, tmp_path)
    assert found, example.note
    assert {finding.code for finding in found} == {rule.code}
    lines = example.source.lstrip("\n").splitlines()
    for finding in found:
        assert Path(finding.location.path) == tmp_path / "example.py"
        assert lines[finding.location.line - 1].strip()
        assert finding.message.endswith(".")
        assert finding.fix is not None
        assert finding.evidence
        for related in finding.related:
            assert (related.location.path, related.location.line) != (
                finding.location.path,
                finding.location.line,
            )
    # Many layers that one line constructs are one thing to say.
    assert len({(finding.location.line, finding.identity, finding.message) for finding in found}) == len(
        found
    )
    assert len({(finding.location.line, finding.identity) for finding in found}) == len(found)


@pytest.mark.parametrize(("rule", "example"), cases("valid"))
def test_valid_example_is_left_alone(rule: type[GraphRule], example: Example, tmp_path: Path) -> None:
    assert [finding.message for finding in check_example(rule, example, tmp_path)] == []
