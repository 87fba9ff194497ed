"""Rules that the configuration changes for some paths (`[[tool.tclint.overrides]]`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tclint.config import Settings
from tclint.finding import Finding
from tclint.registry import load_rules
from tclint.rule import Rule

ENGINE_PREFIX = "TCL"
"""Findings about the run itself (a crashed rule, an idle suppression) are no rule's to select."""


def load_rules_for_any_path(settings: Settings) -> list[Rule]:
    """Instances of the rules that run on at least one path, sorted by code.

    Raises:
        UsageError: a selector names no rule.
    """
    rules = {rule.code: rule for rule in load_rules(settings)}
    for override in settings.overrides:
        there = settings.selecting(override.select, override.extend_select, override.ignore)
        rules |= {rule.code: rule for rule in load_rules(there)}
    return [rules[code] for code in sorted(rules)]


def drop_overridden(findings: Iterable[Finding], settings: Settings) -> list[Finding]:
    """Findings whose rule is selected for the file they are in; their paths are absolute."""
    findings = list(findings)
    if not settings.overrides:
        return findings
    selected: dict[Settings, frozenset[str]] = {}
    kept = []
    for finding in findings:
        there = replace(settings.for_path(finding.location.path), overrides=())
        if there not in selected:
            selected[there] = frozenset(rule.code for rule in load_rules(there))
        is_engine = finding.code.startswith(ENGINE_PREFIX)
        if is_engine or finding.code in selected[there]:
            kept.append(finding)
    return kept
