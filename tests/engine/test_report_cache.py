"""Reports kept between runs: an unchanged model gives the same again, and nothing else does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from html_support import traced_entry
from sample_report import BELOW, VOCABULARY

from tclint.config.settings import Settings
from tclint.core.rule import Rule
from tclint.core.saved import from_json, to_json
from tclint.engine import caches
from tclint.engine.caches import ReportCache
from tclint.engine.report import EntryError, Report
from tclint.report.render import FORMATS, render

TARGET = "model.py:LanguageModel"


class Run:
    """A run that counts how often it is made."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.made = 0

    def __call__(self) -> Report:
        self.made += 1
        return self.report


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("model.py", "silenced.py"):
        Path(name).write_text("x = 1\n")
        os.utime(name, (time.time() - 60.0,) * 2)
    entry = traced_entry()
    assert entry.graph is not None
    graph = replace(
        entry.graph, metadata={**entry.graph.metadata, "source_files": [str(tmp_path / "model.py")]}
    )
    elsewhere = replace(BELOW, location=replace(BELOW.location, path="silenced.py"))
    return Run(
        Report(
            settings=Settings(),
            entries=(replace(entry, graph=graph, settings=Settings()),),
            findings=(VOCABULARY,),
            below_min_gain=(BELOW,),
            suppressed=(elsewhere,),
        )
    )


def check(run: Run, settings: Settings | None = None) -> Report:
    return ReportCache().check(TARGET, settings or Settings(), run)


def test_what_is_unchanged_is_not_run_again(run: Run) -> None:
    fresh, kept = check(run), check(run)
    assert run.made == 1
    assert kept == fresh
    assert [finding.fingerprint for finding in kept.findings] == [VOCABULARY.fingerprint]
    assert kept.entries[0].graph is None
    for name in FORMATS:
        if name != "html":  # whose charts need the graph
            assert render(kept, name) == render(fresh, name)


@pytest.mark.parametrize("name", ["model.py", "silenced.py"])
def test_a_file_that_changed_is_noticed(name: str, run: Run) -> None:
    """That of the model, and that of a comment that silences a finding."""
    check(run)
    Path(name).write_text("x = 2\n")
    check(run)
    assert run.made == 2


@pytest.mark.parametrize(
    "settings",
    [
        Settings(precision="bf16"),
        Settings(min_gain_percent=3.0),
        Settings(ignore=("DIM",)),
        Settings(gpus=("h100",)),
    ],
)
def test_other_settings_are_another_report(settings: Settings, run: Run) -> None:
    check(run)
    check(run, settings)
    check(run, settings)
    assert run.made == 2


def _baseline(run: Run, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return Settings(baseline="baseline.json")


def _calibration(run: Run, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return Settings(calibration="mine.toml")


def _local_rules(run: Run, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return Settings(rules=("lint_rules.py",))


def _error(run: Run, monkeypatch: pytest.MonkeyPatch) -> Settings:
    run.report = replace(run.report, errors=(EntryError(TARGET, "it failed"),))
    return Settings()


def _written_meanwhile(run: Run, monkeypatch: pytest.MonkeyPatch) -> Settings:
    os.utime("model.py", (time.time() + 60.0,) * 2)
    return Settings()


def _rules_of_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> Settings:
    class Mine(Rule):
        pass

    monkeypatch.setattr(caches, "known_rules", lambda: [Mine])
    return Settings()


@pytest.mark.parametrize(
    "reason", [_baseline, _calibration, _local_rules, _error, _written_meanwhile, _rules_of_others]
)
def test_what_rests_on_more_than_the_model_is_not_kept(
    reason: Callable[[Run, pytest.MonkeyPatch], Settings], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = reason(run, monkeypatch)
    check(run, settings)
    check(run, settings)
    assert run.made == 2


def test_another_tclint_or_torch_runs_it_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    check(run)
    now = caches.environment()
    for name in ("tclint", "torch", "packages"):
        monkeypatch.setattr(caches, "environment", lambda name=name: {**now, name: "another"})
        check(run)
    assert run.made == 4


def test_a_damaged_record_is_made_again(run: Run, tmp_path: Path) -> None:
    check(run)
    (record,) = (tmp_path / "cache").rglob("*.json.gz")
    for content in (b"", b"\x1f\x8b", record.read_bytes()[:-20]):
        record.write_bytes(content)
        check(run)
    assert run.made == 4


def test_values_are_exact_and_only_our_own() -> None:
    settings = Settings(gpus=("h100",), explicit=frozenset({"gpus", "batch"}))
    assert from_json(to_json(settings)) == settings
    assert from_json(to_json({"a": [1, (2.5, float("inf"))]})) == {"a": [1, (2.5, float("inf"))]}
    for data in (
        {"of": "os:system", "": {}},
        {"of": "tclint.core.files:os", "": {}},
        {"of": "lost:X", "": {}},
    ):
        with pytest.raises(ValueError, match="no data class of tclint"):
            from_json(data)
    with pytest.raises(TypeError):
        to_json(object())
