"""Annotations as the runner reads them back, and the job summary."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hostile import HOSTILE, hostile_report, hostile_text, many_findings
from hypothesis import HealthCheck, given, settings
from sample_report import VOCABULARY

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Location
from tclint.core.text import printable
from tclint.engine.report import EntryError, Report
from tclint.report.formats.github import command, escape_data, escape_property
from tclint.report.formats.markdown import SUMMARY_BYTES, append_summary
from tclint.report.render import render


@dataclass(frozen=True)
class Annotation:
    level: str
    properties: dict[str, str]
    message: str


def parse(output: str) -> tuple[list[Annotation], list[str]]:
    """Commands and plain lines, read as the runner does: split at line ends, unescape percent last."""
    annotations, plain = [], []
    for line in re.split(r"\r\n|\r|\n", output):
        match = re.fullmatch(r"\s*::([a-z-]+)(?: ([^:]*(?::(?!:)[^:]*)*))?::(.*)", line)
        if match is None:
            assert "##[" not in line
            plain.append(line)
            continue
        listed = [part.split("=", 1) for part in (match[2] or "").split(",")]
        properties = {name: _unescape(value) for name, value in listed}
        annotations.append(Annotation(match[1], properties, _unescape(match[3])))
    return annotations, plain


def _unescape(text: str) -> str:
    for escaped, plain in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        text = text.replace(escaped, plain)
    return text.replace("%25", "%")


@given(text=hostile_text)
def test_escapes_read_back(text: str) -> None:
    assert _unescape(escape_data(text)) == text
    assert _unescape(escape_property(text)) == text
    assert not re.search(r"[\r\n]", escape_data(text))
    assert not re.search(r"[\r\n:,]", escape_property(text))


def test_percent_is_escaped_first() -> None:
    assert escape_data("50%\n%0A") == "50%25%0A%250A"
    assert escape_property("a:b,c%") == "a%3Ab%2Cc%25"


@given(title=hostile_text, message=hostile_text)
def test_any_text_is_one_command(title: str, message: str) -> None:
    line = command("warning", {"title": title}, message)
    annotations, plain = parse(line)
    assert plain == []
    assert len(annotations) == 1
    assert set(annotations[0].properties) == {"title"}
    assert annotations[0].properties["title"] == printable(title)
    assert annotations[0].message == "\n".join(printable(part) for part in message.split("\n"))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=hostile_text, layer=hostile_text, message=hostile_text)
def test_hostile_report_gives_its_own_annotations_only(
    path: str, layer: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = hostile_report(path, layer, message)
    annotations, plain = parse(render(report, "github"))
    assert [annotation.level for annotation in annotations] == ["error", "warning", "notice"]
    assert all(line == "" or line.startswith("tclint: ") for line in plain)
    assert set(annotations[1].properties) <= {"file", "line", "endLine", "col", "endColumn", "title"}
    assert "\x1b" not in render(report, "github")


def test_whole_report(report: Report) -> None:
    annotations, plain = parse(render(report, "github"))
    assert [a.level for a in annotations] == ["error", "error", "warning", "notice"]
    assert annotations[2].properties == {
        "file": "model.py",
        "line": "7",
        "endLine": "7",
        "col": "24",
        "endColumn": "57",
        "title": "DIM003 vocab-misaligned in lm_head of model.py:LanguageModel",
    }
    assert "Fix: Pad the vocabulary to 50304" in annotations[2].message
    assert "a100-sxm4-80gb 4.21 ms (10 % of the step, +-8 %)" in annotations[2].message
    assert plain == ["tclint: 3 findings (1 error, 1 warning, 1 info)", ""]


def test_no_columns_on_several_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finding = replace(VOCABULARY, location=Location("model.py", 7, 24, 9, 3))
    annotations, _ = parse(render(Report(settings=Settings(), findings=(finding,)), "github"))
    assert annotations[0].properties["line"] == "7"
    assert annotations[0].properties["endLine"] == "9"
    assert not {"col", "endColumn"} & set(annotations[0].properties)


def test_paths_from_the_repository_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "real.py").write_text("")
    (tmp_path / "sub" / "link.py").symlink_to(tmp_path / "real.py")
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", "/elsewhere")
    for path, expected in (
        ("model.py", "sub/model.py"),
        ("../other.py", "other.py"),
        ("link.py", "real.py"),
        ("../../outside.py", None),
    ):
        finding = replace(VOCABULARY, location=Location(path, 7))
        annotations, _ = parse(render(Report(settings=Settings(), findings=(finding,)), "github"))
        assert annotations[0].properties.get("file") == expected
        if expected is None:
            assert annotations[0].message.startswith("../../outside.py:7: ")


def test_workspace_is_the_root_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    annotations, _ = parse(render(Report(settings=Settings(), findings=(VOCABULARY,)), "github"))
    assert annotations[0].properties["file"] == "sub/model.py"


def test_ten_of_a_level_and_the_rest_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = many_findings(100)
    report = replace(report, errors=(EntryError("a.py:f", "a.py:f failed"),), findings=report.findings)
    annotations, plain = parse(render(report, "github"))
    for level in ("error", "warning", "notice"):
        assert sum(annotation.level == level for annotation in annotations) == 10
    assert annotations[0].message == "a.py:f failed"
    left_out = "".join(plain)
    assert "25 more errors are not shown" in left_out
    assert "23 more warnings are not shown" in left_out
    assert "23 more notices are not shown" in left_out
    ranked = [a.message for a in annotations if a.level == "warning"]
    shown = [f.message for f in report.findings if f.level == "warning"][:10]
    assert [message.split("\n")[0] for message in ranked] == shown


def test_summary_is_appended(report: Report, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("## Tests\n")
    append_summary(report, str(file))
    text = file.read_text()
    assert text.startswith("## Tests\n\n## tclint: 3 findings (1 error, 1 warning, 1 info)\n")
    assert text.endswith(render(report, "markdown"))


@pytest.mark.parametrize("used_bytes", [0, 500_000, SUMMARY_BYTES - 3_000, SUMMARY_BYTES - 10, SUMMARY_BYTES])
def test_summary_keeps_to_its_limit(used_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above 1 MiB GitHub shows nothing at all of the step."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "summary.md"
    file.write_text("x" * used_bytes)
    report = many_findings(6_000)
    long = tuple(replace(finding, message=finding.message + "\u00e9|" * 200) for finding in report.findings)
    append_summary(replace(report, findings=long), str(file))
    size = file.stat().st_size
    assert size <= SUMMARY_BYTES
    if used_bytes <= 500_000:
        shown = file.read_text().count("\n| error |") + file.read_text().count("\n| warning |")
        assert shown > 150
        assert re.search(r"\d+ findings of lower rank left out", file.read_text())


def test_summary_that_cannot_be_written_says_so(report: Report, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unset GITHUB_STEP_SUMMARY"):
        append_summary(report, str(tmp_path / "missing" / "summary.md"))


@pytest.mark.parametrize("text", HOSTILE)
def test_known_attacks(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    annotations, _ = parse(render(hostile_report(text, text, text, text), "github"))
    assert len(annotations) == 3
    assert not any(annotation.message.startswith("owned") for annotation in annotations)
