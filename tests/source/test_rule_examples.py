"""The examples of every source rule: flagged where they should be, and nowhere else."""

from __future__ import annotations

import ast

import pytest

from tclint.config.settings import Settings
from tclint.core.rule import DOC_SECTIONS, Example
from tclint.engine.rule_registry import all_rules
from tclint.engine.source_pass import lint_text
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.outlines import plausible
from tclint.source.syntax.prefilter import applicable

SOURCE_RULES = [rule for rule in all_rules() if issubclass(rule, SourceRule)]


def cases(kind: str) -> list[object]:
    return [
        pytest.param(rule, example, id=f"{rule.code}-{position}")
        for rule in SOURCE_RULES
        for position, example in enumerate(getattr(rule, kind))
    ]


def settings_of(example: Example) -> Settings:
    return Settings(**(example.settings or {}))


@pytest.mark.parametrize(("rule", "example"), cases("invalid"))
def test_invalid_example_is_flagged(rule: type[SourceRule], example: Example) -> None:
    ast.parse(example.source)
    found = lint_text(example.source, [rule()], settings_of(example), "example.py")
    assert [finding.code for finding in found] == [rule.code], example.note
    lines = example.source.splitlines()
    for finding in found:
        assert lines[finding.location.line - 1][finding.location.column - 1 :].strip()
        assert finding.message.endswith(".")
        assert finding.fix is not None
        assert finding.fix.advice.endswith(".")
        assert finding.evidence
    data = example.source.encode()
    assert plausible(applicable([rule()], data), data)


@pytest.mark.parametrize(("rule", "example"), cases("valid"))
def test_valid_example_is_left_alone(rule: type[SourceRule], example: Example) -> None:
    ast.parse(example.source)
    found = lint_text(example.source, [rule()], settings_of(example), "example.py")
    assert [finding.message for finding in found] == [], example.note


@pytest.mark.parametrize("rule", SOURCE_RULES, ids=lambda rule: rule.code)
def test_rule_is_complete(rule: type[SourceRule]) -> None:
    assert tuple(rule.sections()) == DOC_SECTIONS
    assert all(rule.sections().values())
    assert len(rule.valid) >= 3
    assert len(rule.invalid) >= 3
    assert all(example.note for example in (*rule.valid, *rule.invalid))
    assert rule.sources
