"""[[tool.tclint.overrides]]: which rules run at all, and which findings stand where."""

from __future__ import annotations

from tclint.config.settings import Override, Settings
from tclint.core.finding import Finding, Location
from tclint.core.rule import CRASH_CODE, CRASH_NAME
from tclint.engine.rules.registry import Selection


def finding(code: str, path: str) -> Finding:
    place = Location(path, 1)
    return Finding(code, "a-name", "warning", "high", "It is slow.", place, target="model.py:build")


def codes(findings: list[Finding]) -> list[str]:
    return [found.code for found in findings]


def standing(findings: list[Finding], settings: Settings) -> list[Finding]:
    selection = Selection(settings)
    return [found for found in findings if selection.allows(found)]


FINDINGS = [finding(code, path) for path in ("tests/a.py", "src/a.py") for code in ("DIM001", "DIM003")]


def test_without_overrides_everything_stands() -> None:
    assert standing(FINDINGS, Settings()) == FINDINGS


def test_ignored_on_its_paths_only() -> None:
    settings = Settings(overrides=(Override(("tests/",), ignore=("DIM003",)),))
    assert codes(standing(FINDINGS, settings)) == ["DIM001", "DIM001", "DIM003"]


def test_selected_on_its_paths_only() -> None:
    settings = Settings(select=("DIM001",), overrides=(Override(("tests/",), select=("DIM003",)),))
    assert {rule.code for rule in Selection(settings).rules} == {"DIM001", "DIM003"}
    assert codes(standing(FINDINGS, settings)) == ["DIM003", "DIM001"]


def test_extended_on_its_paths_only() -> None:
    settings = Settings(
        select=("DIM001",), overrides=(Override(("tests/",), extend_select=("vocab-misaligned",)),)
    )
    assert codes(standing(FINDINGS, settings)) == ["DIM001", "DIM003", "DIM001"]


def test_later_override_has_the_last_word() -> None:
    settings = Settings(
        overrides=(
            Override(("*",), ignore=("DIM003",)),
            Override(("tests/",), extend_select=("DIM003",)),
        )
    )
    assert codes(standing(FINDINGS, settings)) == ["DIM001", "DIM003", "DIM001"]


def test_engine_findings_always_stand() -> None:
    crashed = Finding(CRASH_CODE, CRASH_NAME, "error", "high", "A rule failed.", Location("tests/a.py", 1))
    settings = Settings(overrides=(Override(("*",), select=("DIM001",)),))
    assert standing([crashed], settings) == [crashed]
