"""What `tclint diff` says of two reports, and `tclint history` of a folder of them."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hostile import HOSTILE, hostile_report, hostile_text
from hypothesis import HealthCheck, given, settings
from sample_report import BACKWARD, ENTRY, STEM, VOCABULARY, metrics
from test_markdown import check_structure

from tclint.cli.main import cli
from tclint.config.budget import Budget
from tclint.config.settings import Settings
from tclint.core.finding import Effect, Finding
from tclint.engine.check import check
from tclint.engine.report import Entry, EntryError, Report
from tclint.report.comparison import diff
from tclint.report.formats.diff import MARKDOWN_CHARACTERS, render_diff
from tclint.report.formats.json import to_dict
from tclint.report.history import COLUMNS, history, to_csv
from tclint.report.render import render

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(*findings: Finding, entry: Entry | None = ENTRY, **changes: Any) -> Report:
    entries = () if entry is None else (entry,)
    return replace(Report(settings=Settings(), entries=entries, findings=findings), **changes)


def document(*findings: Finding, entry: Entry | None = ENTRY, **changes: Any) -> dict[str, Any]:
    return json.loads(render(made(*findings, entry=entry, **changes), "json"))  # type: ignore[no-any-return]


def with_metrics(step_time_us: float = 42_100.0, **changes: object) -> Entry:
    return replace(ENTRY, metrics={"a100-sxm4-80gb": metrics("a100-sxm4-80gb", step_time_us, **changes)})


def test_same_reports_have_no_difference() -> None:
    found = diff(document(BACKWARD, STEM), document(BACKWARD, STEM))
    assert (found.new, found.fixed, found.changed, found.metrics, found.notes) == ((), (), (), (), ())
    assert found.unchanged == 2
    assert found.exit_code == 0


def test_new_and_fixed() -> None:
    found = diff(document(STEM, VOCABULARY), document(VOCABULARY, BACKWARD))
    assert [finding["code"] for finding in found.new] == ["AMP006"]
    assert [finding["code"] for finding in found.fixed] == ["DIM002"]
    assert found.regressions == ("new error: AMP006 backward-under-autocast at train.py:3",)
    assert found.exit_code == 1


def test_a_moved_line_is_no_difference() -> None:
    moved = replace(VOCABULARY, location=replace(VOCABULARY.location, line=70, end_line=70))
    assert diff(document(VOCABULARY), document(moved)).unchanged == 1


def test_the_level_decides_what_a_new_finding_is() -> None:
    old, new = document(), document(STEM)
    assert diff(old, new).exit_code == 0
    assert diff(old, new, fail_on="info").exit_code == 1
    assert diff(old, document(BACKWARD), fail_on="never").exit_code == 0


def test_changed_findings() -> None:
    risen = replace(STEM, level="error")
    found = diff(document(STEM), document(risen))
    assert found.changed[0].what == ("level",)
    assert found.regressions == (f"{ENTRY.target}: now error: DIM002 conv-misaligned at model.py:8 (stem)",)
    priced = replace(BACKWARD, identity="same", effect=STEM.effect, message="other words")
    found = diff(document(replace(BACKWARD, identity="same")), document(priced))
    assert found.changed[0].what == ("message", "gain")
    assert found.exit_code == 0


def test_equal_fingerprints_are_counted() -> None:
    found = diff(document(STEM, STEM), document(STEM, STEM, STEM))
    assert (len(found.new), found.unchanged) == (1, 2)
    found = diff(document(STEM, STEM, STEM), document(STEM))
    assert (len(found.fixed), found.unchanged) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "threshold", "regressions"),
    [
        ({"step_time_us": 42_500.0}, 1.0, 0),
        ({"step_time_us": 43_000.0}, 1.0, 1),
        ({"step_time_us": 43_000.0}, 5.0, 0),
        ({"step_time_us": 30_000.0}, 1.0, 0),
        ({"readiness_percent": 60.5}, 1.0, 0),
        ({"readiness_percent": 59.0}, 1.0, 1),
        ({"readiness_percent": 99.0}, 1.0, 0),
        ({"memory_bytes": 2_000}, 1.0, 1),
        ({"memory_bytes": 500}, 1.0, 0),
        ({"aligned_flops_percent": 50.0}, 1.0, 0),
        ({"step_time_us": 43_000.0, "readiness_percent": 50.0, "memory_bytes": 2_000}, 1.0, 1),
        ({"step_time_us": 40_000.0, "readiness_percent": 50.0}, 1.0, 0),
        ({"uncertainty_percent": 99.0}, 1.0, 0),
        ({"amdahl_ceiling": 1.0}, 1.0, 0),
    ],
)
def test_metrics_regress_over_the_threshold(
    changes: dict[str, Any], threshold: float, regressions: int
) -> None:
    known = {"memory_bytes": 1_000, "aligned_flops_percent": 90.0}
    old = document(entry=with_metrics(**known))
    new = document(entry=with_metrics(**{**known, **changes}))
    found = diff(old, new, budget=Budget(threshold, threshold, threshold))
    assert len(found.regressions) == regressions


def test_what_moved_is_shown_with_both_values() -> None:
    found = diff(document(entry=with_metrics()), document(entry=with_metrics(50_000.0)))
    delta = found.metrics[0]
    assert (delta.name, delta.old, delta.new) == ("step_time_us", 42_100.0, 50_000.0)
    assert delta.change == pytest.approx(18.765, abs=0.001)
    assert found.regressions == (
        "model.py:LanguageModel: step 42.1 ms -> 50.0 ms (+18.8 %) on a100-sxm4-80gb, fp16, train",
    )


def test_what_is_left_to_gain_in_a_faster_model_is_no_regression() -> None:
    """A fix makes the next problem worth listing; an error, and what has no price, are news all the same."""
    news = replace(VOCABULARY, code="ARC005", name="manual-attention")
    old, faster = document(entry=with_metrics()), with_metrics(30_000.0)
    found = diff(old, document(news, entry=faster))
    assert found.exit_code == 0
    assert found.new
    assert f"{ENTRY.target} got faster: its new finding is" in found.notes[-1]
    assert diff(old, document(news, entry=with_metrics())).exit_code == 1
    assert diff(old, document(replace(news, level="error"), entry=faster)).exit_code == 1
    assert diff(old, document(replace(news, effect=BACKWARD.effect), entry=faster)).exit_code == 1

    def on_two(a100_us: float, v100_us: float) -> Entry:
        steps = {"a100-sxm4-80gb": a100_us, "v100-sxm2-16gb": v100_us}
        return replace(ENTRY, metrics={gpu: metrics(gpu, step_us) for gpu, step_us in steps.items()})

    was = document(entry=on_two(42_100.0, 98_000.0))
    assert diff(was, document(news, entry=on_two(30_000.0, 98_000.0))).exit_code == 0
    assert diff(was, document(news, entry=on_two(30_000.0, 98_500.0))).exit_code == 1


def test_other_inputs_are_no_regression() -> None:
    other = replace(with_metrics(99_000.0), inputs=(("tokens", "int64", (16, 1024)),))
    found = diff(document(entry=with_metrics()), document(entry=other))
    assert found.metrics
    assert found.exit_code == 0
    assert "other inputs" in found.notes[0]


def test_a_model_that_fails_now_is_a_regression() -> None:
    broken = document(entry=None, errors=(EntryError(ENTRY.target, "it broke"),))
    found = diff(document(entry=ENTRY), broken)
    assert found.regressions == (f"{ENTRY.target} can no longer be linted: it broke",)
    assert f"Only the old report has {ENTRY.target}." in found.notes


def test_notes_on_what_else_differs() -> None:
    old, new = document(), document()
    new["tool"] = {**new["tool"], "version": "9.9"}
    new["provenance"] = {**new["provenance"], "torch": "9.9"}
    new["settings"] = {**new["settings"], "mode": "infer"}
    notes = " ".join(diff(old, new).notes)
    assert "of tclint" in notes
    assert "torch" in notes
    assert "settings differ: mode" in notes
    new = document()
    new["tool"] = {**new["tool"], "hash": "0" * 16}
    assert "different builds" in diff(old, new).notes[0]


Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def reports() -> tuple[Path, Path]:
    old, new = Path("old.json"), Path("new.jsonl")
    old.write_text(render(made(STEM, VOCABULARY, entry=with_metrics()), "json"))
    priced = replace(VOCABULARY, effect=Effect(unknown="gone"))
    new.write_text(render(made(priced, BACKWARD, entry=with_metrics(50_000.0)), "jsonl"))
    return old, new


def test_command_as_text(run: Run, reports: tuple[Path, Path]) -> None:
    result = run("diff", *reports)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "failed: 2 regressions; 1 new, 1 fixed, 1 changed, 0 unchanged findings"
    assert lines[1].startswith(
        "  regression: model.py:LanguageModel: step 42.1 ms -> 50.0 ms (+18.8 %) on a100"
    )
    assert lines[2] == "  regression: new error: AMP006 backward-under-autocast at train.py:3"
    assert lines[3].startswith("+ train.py:3: error: AMP006 backward-under-autocast: ")
    assert lines[4].startswith("- model.py:8 (stem): info: DIM002 conv-misaligned: ")
    assert lines[5].startswith("~ model.py:7 (lm_head): warning: DIM003")
    assert lines[6] == "    gain 10 % -> unknown"


def test_command_as_json_and_markdown(run: Run, reports: tuple[Path, Path]) -> None:
    data = json.loads(run("diff", *reports, "--format", "json").stdout)
    assert data["exit_code"] == 1
    assert [finding["code"] for finding in data["new"]] == ["AMP006"]
    assert data["metrics"][0]["is_regression"] is True
    markdown = run("diff", *reports, "--format", "markdown").stdout
    check_structure(markdown)
    assert markdown.startswith("## tclint: failed: 2 regressions; ")
    assert "| <code>model.py:LanguageModel</code> | a100-sxm4-80gb, fp16, train | 42.1 ms" in markdown


def test_command_options(run: Run, reports: tuple[Path, Path]) -> None:
    assert run("diff", *reports, "--threshold", "20%", "--fail-on", "never").exit_code == 0
    assert run("diff", *reports, "--threshold", "20").exit_code == 1
    assert run("diff", *reports, "--fail-on", "never").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.json", "old.json"), "There is no report 'missing.json'"),
        (("text.json", "old.json"), "'text.json' is not a tclint report"),
        (("list.json", "old.json"), "it holds no object"),
        (("other.json", "old.json"), "'other.json' is not a tclint report"),
        (("ancient.json", "old.json"), "schema version 0.9"),
        (("future.json", "old.json"), "schema version 2.0"),
        (("damaged.json", "old.json"), "'metrics' are missing or damaged"),
        (("lacking.json", "old.json"), "'findings' lack"),
        (("wrong.json", "old.json"), "'value' in 'metrics'"),
        (("binary.json", "old.json"), "not UTF-8"),
        (("old.json", "old.json", "--threshold", "much"), "--threshold expects percent"),
        (("old.json", "old.json", "--format", "html"), "The formats are text, markdown, json."),
        (("old.json", "old.json", "--fail-on", "warnin"), "Did you mean 'warning'"),
        (("old.json", "."), "Cannot read the report"),
    ],
)
def test_mistakes_are_one_sentence(
    run: Run, reports: tuple[Path, Path], arguments: tuple[str, ...], message: str
) -> None:
    good = document(STEM)
    for name, content in {
        "text": "hello",
        "list": "[]",
        "other": '{"schema_version": 3}',
        "ancient": json.dumps({**good, "schema_version": "0.9"}),
        "future": json.dumps({**good, "schema_version": "2.0"}),
        "damaged": json.dumps({**good, "metrics": [1]}),
        "lacking": json.dumps({**good, "findings": [{}]}),
        "wrong": json.dumps({**good, "metrics": [{**good["metrics"][0], "value": "1"}]}),
    }.items():
        Path(f"{name}.json").write_text(content)
    Path("binary.json").write_bytes(b"\xff\xfe")
    result = run("diff", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


def test_schema_command(run: Run) -> None:
    printed = json.loads(run("schema").stdout)
    assert printed["title"] == "tclint report"
    assert "record" in printed["$defs"]


@pytest.mark.parametrize("text", HOSTILE)
def test_known_attacks_on_the_diff(text: str) -> None:
    old = json.loads(render(made(), "json"))
    new = json.loads(render(hostile_report(text, text, text, text), "json"))
    found = diff(old, new)
    for line in render_diff(found, "text").splitlines():
        assert line.isprintable()
    check_structure(render_diff(found, "markdown"))
    json.loads(render_diff(found, "json"))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=hostile_text, layer=hostile_text, message=hostile_text)
def test_any_text_in_the_diff(path: str, layer: str, message: str) -> None:
    old = to_dict(made())
    new = json.loads(render(hostile_report(path, layer, message), "json"))
    found = diff(old, new)
    check_structure(render_diff(found, "markdown"))
    assert all(line.isprintable() for line in render_diff(found, "text").split("\n"))


def test_markdown_fits_a_comment() -> None:
    many = [replace(STEM, message=f"{number} {'<' * 300}", identity=str(number)) for number in range(3_000)]
    markdown = render_diff(diff(document(), document(*many)), "markdown")
    assert len(markdown) <= MARKDOWN_CHARACTERS + 100
    check_structure(markdown)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_history_is_a_row_per_model_gpu_and_precision(run: Run) -> None:
    Path("runs/sub").mkdir(parents=True)
    both = with_metrics(step_time_us_by_precision={"fp16": 42_100.0, "tf32": 90_000.0})
    for name, report, when in (
        ("sub/b.jsonl", made(STEM, entry=both), 2_000_000_000),
        ("a.json", made(STEM, VOCABULARY, BACKWARD, entry=with_metrics()), 1_000_000_000),
    ):
        file = Path("runs", name)
        file.write_text(render(report, file.suffix[1:]))
        os.utime(file, (when, when))
    Path("runs/other.json").write_text("{}")
    Path("runs/notes.txt").write_text("hello")
    result = run("history", "runs")
    assert result.exit_code == 0
    assert result.stderr.count("\n") == 1
    assert "skipped: 'runs/other.json'" in result.stderr
    rows = table(result.stdout)
    assert list(rows[0]) == list(COLUMNS)
    assert [(row["report"], row["precision"]) for row in rows] == [
        ("a.json", "fp16"),
        ("sub/b.jsonl", "fp16"),
        ("sub/b.jsonl", "tf32"),
    ]
    assert rows[0]["time"] == "2001-09-09T01:46:40Z"
    assert rows[0]["step_time_us"] == "42100.0"
    assert (rows[0]["errors"], rows[0]["warnings"], rows[0]["infos"]) == ("0", "1", "1")
    assert rows[2]["readiness_percent"] == ""
    assert rows[0]["model"] == "LanguageModel"
    assert rows[0]["forward_flops"] == str(ENTRY.flops)


def test_history_of_sources_has_a_row_without_a_model() -> None:
    Path("a.json").write_text(render(made(BACKWARD, entry=None, source_files=3), "json"))
    (row,) = history(".").rows
    assert row["target"] is None
    assert row["errors"] == 1


def test_history_takes_the_time_of_the_commit(git: Callable[..., str]) -> None:
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    Path("a.json").write_text(render(made(), "json"))
    row = history(".").rows[0]
    assert row["time"] == "2026-01-02T03:04:05Z"
    assert row["commit"] == git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing",), "There is no folder 'missing'"),
        (("empty",), "holds no tclint report"),
        ((".", "--output", "no/such/file.csv"), "does not exist"),
    ],
)
def test_mistakes_with_history(run: Run, arguments: tuple[str, ...], message: str) -> None:
    Path("empty").mkdir()
    Path("a.json").write_text(render(made(), "json"))
    result = run("history", *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_in_the_table(text: str) -> None:
    Path("a.json").write_text(render(hostile_report(text, text, text, text), "json"))
    rows = table(to_csv(history(".").rows))
    assert len(rows) == 2
    for row in rows:
        assert None not in row
        assert all(cell.isprintable() for cell in row.values())
        assert not row["target"].startswith(("=", "+", "-", "@"))


def test_code_that_moved_is_no_news(tmp_path: Path) -> None:
    for code in ("AMP003", "AMP013", "PRC004"):
        shutil.copytree(ROOT / "fixtures" / "rules" / code, tmp_path / code)

    def linted() -> dict[str, Any]:
        report = check(["."], Settings(select=("ALL",)))
        found: dict[str, Any] = json.loads(render(report, "json"))
        return found

    before = linted()
    assert sum(" line" in finding["message"] for finding in before["findings"]) > 8
    for file in tmp_path.glob("*/*.py"):
        file.write_text("# moved\n\n\n" + file.read_text())
    found = diff(before, linted())
    assert (found.new, found.fixed, found.changed) == ((), (), ())
    assert found.unchanged == len(before["findings"])


@pytest.mark.parametrize("name", ["github", "gitlab", "junit", "sarif", "markdown"])
def test_what_is_wrong_altogether_has_no_unknown_effect(name: str) -> None:
    def shown(finding: Finding) -> str:
        return render(Report(settings=Settings(), findings=(finding,)), name).lower()

    assert "unknown" not in shown(BACKWARD)
    assert "unknown" in shown(replace(BACKWARD, level="warning"))
    assert "unknown" not in shown(replace(BACKWARD, level="warning", code="TCL004"))
