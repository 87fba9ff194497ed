"""Retired rules, whose codes and names stay valid where users wrote them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tclint.config.settings import Override, Settings
from tclint.core.toml import parse_toml

_PACKAGE = "tclint_rules"
_FILE = "retired.toml"


@dataclass(frozen=True, slots=True)
class Retired:
    """A rule that was removed."""

    code: str
    name: str
    why: str

    def sentence(self) -> str:
        return f"{self.code} ({self.name}) is retired: {self.why}."


@lru_cache(maxsize=1)
def retired_rules() -> tuple[Retired, ...]:
    """All retired rules, sorted by code."""
    spec = importlib.util.find_spec(_PACKAGE)
    files = [Path(folder) / _FILE for folder in spec.submodule_search_locations or ()] if spec else []
    found = {
        code: Retired(code, entry["name"], entry["why"])
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


def retired_selectors(settings: Settings) -> list[str]:
    """A sentence for each retired rule that the settings select or ignore."""
    written: list[str] = []
    for one in (settings, *(nested for _, nested in settings.nested)):
        tables: tuple[Settings | Override, ...] = (one, *one.overrides)
        for table in tables:
            written += (*table.select, *table.extend_select, *table.ignore)
    found = {rule.code: rule.sentence() for one in written if (rule := retired_as(one)) is not None}
    return [found[code] for code in sorted(found)]
