"""Retired rules, whose codes and names stay valid where users wrote them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tclint.config.settings import Override, Settings
from tclint.core.finding import Finding
from tclint.core.toml import parse_toml

_PACKAGE = "tclint_rules"
_FILE = "retired.toml"


@dataclass(frozen=True, slots=True)
class Retired:
    """A rule that was removed."""

    code: str
    name: str
    why: str
    successor: str = ""
    """The code of the rule that now finds what this one found; '' if none does."""
    evidence: str = ""
    """The evidence key by which the successor's findings are those that this rule had."""

    def sentence(self) -> str:
        return f"{self.code} ({self.name}) is retired: {self.why}."


@lru_cache(maxsize=1)
def retired_rules() -> tuple[Retired, ...]:
    """All retired rules, sorted by code."""
    spec = importlib.util.find_spec(_PACKAGE)
    files = [Path(folder) / _FILE for folder in spec.submodule_search_locations or ()] if spec else []
    found = {
        code: Retired(code, **entry)
        for file in files
        if file.is_file()
        for code, entry in parse_toml(file.read_text(encoding="utf-8")).items()
    }
    return tuple(found[code] for code in sorted(found))


def retired_as(selector: str) -> Retired | None:
    """The retired rule with this code or name; None if there is none."""
    named = (
        rule for rule in retired_rules() if selector.upper() == rule.code or selector.lower() == rule.name
    )
    return next(named, None)


def found_by(code: str) -> str:
    """The code of the rule that finds what a rule with this code found."""
    return next((rule.successor for rule in retired_rules() if rule.code == code and rule.successor), code)


def means(selector: str, code: str, name: str) -> bool:
    """Whether a code, a prefix of codes or a name means a rule."""
    return name == selector.lower() or (bool(selector) and code.startswith(selector.upper()))


def as_reported(finding: Finding) -> Iterable[Finding]:
    """A finding, and what it was when a rule reported it that is retired now."""
    yield finding
    for rule in retired_rules():
        if rule.successor == finding.code and rule.evidence in finding.evidence:
            yield replace(finding, code=rule.code, name=rule.name)


def named_by(selectors: Iterable[str], finding: Finding) -> str | None:
    """The first selector that means a finding's rule, or a retired one that reported it, if any does."""
    for selector in selectors:
        if any(means(selector, was.code, was.name) for was in as_reported(finding)):
            return selector
    return None


def retired_selectors(settings: Settings) -> list[str]:
    """A sentence for each retired rule that the settings select or ignore."""
    written: list[str] = []
    for one in (settings, *(nested for _, nested in settings.nested)):
        tables: tuple[Settings | Override, ...] = (one, *one.overrides)
        for table in tables:
            written += (*table.select, *table.extend_select, *table.ignore)
    found = {rule.code: rule.sentence() for one in written if (rule := retired_as(one)) is not None}
    return [found[code] for code in sorted(found)]
