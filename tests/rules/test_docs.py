"""What every rule says about itself: stable identity, documentation, sources."""

from __future__ import annotations

import pytest

from tclint.core.rule import CODE_PATTERN, DOC_SECTIONS, NAME_PATTERN, Rule
from tclint.engine.rule_registry import all_rules
from tclint.source.source_rule import SourceRule

RULES = all_rules()
FAMILIES = {"DIM", "FMT", "ARC", "AMP", "PRC", "RUN"}

rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def test_codes_and_names_are_unique() -> None:
    """One class for each side of a rule, and one name for each code."""
    assert len({(rule.code, issubclass(rule, SourceRule)) for rule in RULES}) == len(RULES)
    pairs = {(rule.code, rule.name) for rule in RULES}
    assert len({code for code, _ in pairs}) == len({name for _, name in pairs}) == len(pairs)


@rules
def test_identity(rule: type[Rule]) -> None:
    assert CODE_PATTERN.fullmatch(rule.code)
    assert rule.code[:3] in FAMILIES
    assert NAME_PATTERN.fullmatch(rule.name)
    assert rule.level in ("error", "warning", "info")
    assert rule.confidence in ("high", "medium", "low")
    assert rule.since
    # Low-confidence rules would cry wolf by default.
    assert rule.enabled_by_default or rule.confidence != "high"
    assert not (rule.enabled_by_default and rule.confidence == "low")


@rules
def test_documentation_has_every_section_in_order_and_text_in_each(rule: type[Rule]) -> None:
    sections = rule.sections()
    assert tuple(sections) == DOC_SECTIONS
    assert all(body.strip() for body in sections.values())
    assert rule.summary().endswith(".")
    assert len(rule.summary()) <= 110
    for heading in ("Example", "Use instead"):
        assert sections[heading].startswith("    "), "code is indented, so that it renders as code"


@rules
def test_sources_name_documents(rule: type[Rule]) -> None:
    assert rule.sources
    assert all(len(source) > 10 for source in rule.sources)
