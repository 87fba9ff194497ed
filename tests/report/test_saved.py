"""A report made again from its JSON: every format shows what the run showed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sample_report import BACKWARD, ENTRY

from tclint.analysis.what_if.comparisons import BatchLimits, ComparedStep, Comparison
from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Location
from tclint.cost.rows import Memory
from tclint.engine.report import PlannedFix, Report
from tclint.report.render import FORMATS, render
from tclint.report.saved import report_of


@pytest.fixture
def full(report: Report) -> Report:
    """With everything of an entry that JSON holds, and settings of its own."""
    steps = (ComparedStep("fp16", 1500.0, 1.0, 512.0, 61.0, 80.0, 8.0, 2**30, True, True, present=True),)
    gpu = "a100-sxm4-80gb"
    metrics = replace(
        ENTRY.metrics[gpu],
        memory=Memory(2**28, 0, 2**28, 2**29, 2**32, checkpointed_activations_bytes=2**30),
        batch_limits=BatchLimits(64, 32, 128),
        step_time_fixed_us=37_890.0,
        readiness_fixed_percent=70.0,
        run_steps=1000,
        run_gpu_hours=0.0117,
    )
    fix = PlannedFix(
        "DIM003", "vocab-misaligned", Location("model.py", 7), {gpu: 37_890.0}, {gpu: 70.0}, False
    )
    entry = replace(
        ENTRY,
        metrics={**ENTRY.metrics, gpu: metrics},
        comparisons=(Comparison("precision", gpu, steps),),
        plan=(fix, replace(fix, code="ARC016", needs_others=True)),
        fixes_made=2,
        settings=replace(report.settings, compiled=True),
    )
    return replace(report, entries=(entry,))


def again(report: Report) -> Report:
    return report_of(json.loads(render(report, "json")), "report.json")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_what_the_run_showed(name: str, full: Report) -> None:
    # The page says of a saved report why it has no charts.
    shown = render(again(full), name).replace('"is_saved":true', '"is_saved":false')
    assert_same(shown, render(full, name))


def assert_same(one: str, other: str) -> None:
    """Equal but for the last digits, which JSON has three of."""
    number = re.compile(r"\d+\.\d{3,}")
    assert number.sub("?", one) == number.sub("?", other)
    pairs = zip(number.findall(one), number.findall(other), strict=True)
    assert all(float(a) == pytest.approx(float(b), rel=1e-3) for a, b in pairs)


def test_numbers_that_were_not_finite(report: Report) -> None:
    unknown = replace(ENTRY.metrics["a100-sxm4-80gb"], step_time_us=float("nan"), amdahl_ceiling=float("nan"))
    without = replace(report, entries=(replace(ENTRY, metrics={"a100-sxm4-80gb": unknown}),))
    for name in ("text", "openmetrics", "markdown"):
        assert_same(render(again(without), name), render(without, name))


def test_it_says_what_made_the_report_not_what_shows_it(report: Report) -> None:
    document = json.loads(render(report, "json"))
    document["tool"].update(version="0.0.7", hash="0123456789abcdef")
    document["provenance"]["git"] = {"commit": "c0ffee", "commit_time": "2026-01-01", "dirty": False}
    made = report_of(document, "report.json")
    assert 'version="0.0.7",schema_version="1.0",hash="0123456789abcdef"' in render(made, "openmetrics")
    driver = json.loads(render(made, "sarif"))["runs"][0]["tool"]["driver"]
    assert (driver["version"], driver["properties"]["hash"]) == ("0.0.7", "0123456789abcdef")
    assert 'commit="c0ffee"' in render(made, "openmetrics")


def test_lines_of_files_that_changed_since_are_not_shown(report: Report) -> None:
    saved = render(report, "json")

    def shown() -> str:
        return render(report_of(json.loads(saved), "report.json"), "text")

    os.utime("train.py", (time.time() + 60.0,) * 2)
    assert "loss.backward()" in shown(), "another time is no other file"
    file = Path("train.py")
    file.write_text(file.read_text() + "\n")
    assert "loss.backward()" not in shown()
    assert BACKWARD.message.split()[0] in shown()


def test_a_report_shows_nothing_but_what_it_was_made_from(
    tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes a report chooses its paths; whoever shows it may not be meant to read them to others."""
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n" * 20)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link.py").symlink_to(secret)
    (tmp_path / "inside" / "own.py").write_text("password = 1\n" * 20)
    os.mkfifo(tmp_path / "inside" / "pipe.py")
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()

    def shows(path: str, digest: str | None) -> set[str]:
        document = json.loads(render(report, "json"))
        for finding in document["findings"]:
            for location in (finding["location"], *(each["location"] for each in finding["related"])):
                location["path"] = path
            finding["source_sha256"] = digest
            finding["fix"] = {
                "advice": "Edit it.",
                "safety": "safe",
                "edits": [{"path": path, "start": [1, 1], "end": [2, 1], "replacement": ""}],
            }
        made = report_of(document, "r.json")
        return {name for name in FORMATS if name != "json" and "password" in render(made, name)}

    monkeypatch.chdir(tmp_path / "inside")
    assert shows("own.py", digest) == {"text", "html"}
    assert shows(str(tmp_path / "inside" / "own.py"), digest) == {"text", "html"}
    assert shows("own.py", None) == shows("own.py", 64 * "0") == set()
    for path in (str(secret), "../secret.py", "../inside/../secret.py", "link.py", "pipe.py", "."):
        assert shows(path, digest) == set(), path


def test_a_report_before_the_fields_that_came_later(full: Report) -> None:
    document = json.loads(render(full, "json"))
    (entry,) = document["entries"]
    for name in ("settings", "fixes_made"):
        del entry[name]
    del entry["metrics"]["a100-sxm4-80gb"]["batch"]
    assert "all 2 priced fixes" in render(report_of(document, "old.json"), "text")


@pytest.mark.parametrize("lost", ["level", "message", "effect", "location", "fix", "related"])
def test_a_damaged_report_is_refused_in_a_sentence(report: Report, lost: str) -> None:
    document = json.loads(render(report, "json"))
    del document["findings"][1][lost]
    with pytest.raises(UsageError, match=r"'r\.json' is not a complete tclint report"):
        report_of(document, "r.json")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def test_the_command(full: Report, tmp_path: Path) -> None:
    Path("old.json").write_text(render(full, "json"))
    shown = run("report", "old.json", "--output", "html=page.html", "--output", "sarif=all.sarif", "-v")
    assert shown.exit_code == 0
    assert "all 2 priced fixes" in shown.stdout
    assert "<!doctype html>" in Path("page.html").read_text()
    assert json.loads(Path("all.sarif").read_text())["version"] == "2.1.0"
    same: dict[str, Any] = json.loads(run("report", "old.json", "--format", "json").stdout)
    assert same == json.loads(render(full, "json"))
    Path("old.jsonl").write_text(run("report", "old.json", "--format", "jsonl").stdout)
    assert run("report", "old.jsonl").stdout == run("report", "old.json").stdout
    for arguments, said in (
        (("model.py",), "is not a tclint report"),
        (("lost.json",), "There is no report"),
        (("old.json", "--format", "pdf"), "There is no format 'pdf'"),
    ):
        refused = run("report", *arguments)
        assert refused.exit_code == 2
        assert said in refused.stderr


def test_settings_of_an_entry_are_those_that_differ(full: Report) -> None:
    document = json.loads(render(full, "json"))
    assert document["entries"][0]["settings"] == {"compiled": True}
    (entry,) = again(full).entries
    assert entry.settings is not None
    assert entry.settings.compiled
    assert again(full).settings == Settings(gpus=full.settings.gpus)
