"""Every format together: large reports, hostile text, and the command that writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile import hostile_report, many_findings

import tclint.engine.check
from tclint.cli.main import cli
from tclint.engine.report import Report
from tclint.report.render import FORMATS, Style, render


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for number in range(50):
        (tmp_path / "src" / f"file{number}.py").write_text("x = torch.nn.Linear(10, 10)  # a line\n" * 200)
    return many_findings(5_000)


@pytest.mark.parametrize("name", FORMATS)
def test_5000_findings(name: str, large: Report) -> None:
    text = render(large, name, Style())
    assert text.endswith("\n")
    assert len(text) > 1_000


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_text_that_utf_8_can_hold(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "caf\udce9 \ud800 \x1b[31m \u202e"
    rendered = render(hostile_report(text, text, text, text), name)
    rendered.encode("utf-8")
    assert "\x1b" not in rendered
    assert "\u202e" not in rendered or name in ("json", "jsonl")


def test_command_writes_every_format(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tclint.engine.check, "check", lambda *_, **__: report)
    outputs = [part for name in FORMATS for part in ("--output", f"{name}=out.{name}")]
    result = CliRunner().invoke(cli, ["check", "train.py", *outputs])
    assert result.exit_code == report.exit_code
    for name in FORMATS:
        assert Path(f"out.{name}").read_text(encoding="utf-8") == render(report, name)


def test_github_format_appends_the_job_summary(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tclint.engine.check, "check", lambda *_, **__: report)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    result = CliRunner().invoke(cli, ["check", "train.py", "--format", "github"])
    assert result.stdout == render(report, "github")
    assert Path("summary.md").read_text() == render(report, "markdown")
    CliRunner().invoke(cli, ["check", "train.py", "--format", "json", "--output", "github=x.txt"])
    assert Path("summary.md").read_text() == render(report, "markdown")


def test_a_summary_that_cannot_be_written_changes_no_verdict(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tclint.engine.check, "check", lambda *_, **__: report)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "missing/summary.md")
    result = CliRunner().invoke(cli, ["check", "train.py", "--format", "github"])
    assert result.exit_code == report.exit_code
    assert "warning: Cannot write the job summary" in result.stderr
