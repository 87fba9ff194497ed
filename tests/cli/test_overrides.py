"""[[tool.tclint.overrides]]: which rules run at all, and which findings stand where."""

from __future__ import annotations

from tclint.config import Override, Settings
from tclint.finding import Finding, Location
from tclint.overrides import drop_overridden, load_rules_for_any_path
from tclint.rule import CRASH_CODE, CRASH_NAME


def finding(code: str, path: str) -> Finding:
    return Finding(code, "a-name", "warning", "high", "It is slow.", Location(path, 1))


def codes(findings: list[Finding]) -> list[str]:
    return [found.code for found in findings]


FINDINGS = [finding(code, path) for path in ("/p/tests/a.py", "/p/src/a.py") for code in ("DIM001", "DIM003")]


def test_without_overrides_everything_stands() -> None:
    assert drop_overridden(FINDINGS, Settings()) == FINDINGS


def test_ignored_on_its_paths_only() -> None:
    settings = Settings(overrides=(Override(("/p/tests/",), ignore=("DIM003",)),))
    assert codes(drop_overridden(FINDINGS, settings)) == ["DIM001", "DIM001", "DIM003"]


def test_selected_on_its_paths_only() -> None:
    settings = Settings(select=("DIM001",), overrides=(Override(("/p/tests/",), select=("DIM003",)),))
    assert [rule.code for rule in load_rules_for_any_path(settings)] == ["DIM001", "DIM003"]
    assert codes(drop_overridden(FINDINGS, settings)) == ["DIM003", "DIM001"]


def test_extended_on_its_paths_only() -> None:
    settings = Settings(
        select=("DIM001",), overrides=(Override(("/p/tests/",), extend_select=("vocab-misaligned",)),)
    )
    assert codes(drop_overridden(FINDINGS, settings)) == ["DIM001", "DIM003", "DIM001"]


def test_later_override_has_the_last_word() -> None:
    settings = Settings(
        overrides=(
            Override(("/p/",), ignore=("DIM003",)),
            Override(("/p/tests/",), extend_select=("DIM003",)),
        )
    )
    assert codes(drop_overridden(FINDINGS, settings)) == ["DIM001", "DIM003", "DIM001"]


def test_engine_findings_always_stand() -> None:
    crashed = Finding(CRASH_CODE, CRASH_NAME, "error", "high", "A rule failed.", Location("/p/tests/a.py", 1))
    settings = Settings(overrides=(Override(("/p/",), select=("DIM001",)),))
    assert drop_overridden([crashed], settings) == [crashed]
