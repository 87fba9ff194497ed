"""The command: what it does with its arguments, its exit codes, and what it says of mistakes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tclint.engine.check
from tclint import __version__
from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Effect, Finding, Level, Location
from tclint.core.rule import CRASH_CODE
from tclint.engine.report import EntryError, Report

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments))

    return invoke


class Pipeline:
    """Stands in for the pipeline: remembers what it was asked, answers with a given report."""

    def __init__(self) -> None:
        self.targets: list[str] | None = None
        self.settings = Settings()
        self.answer: Callable[[Settings], Report] = lambda settings: Report(settings=settings)

    def __call__(self, targets: Sequence[str], settings: Settings, **_: Any) -> Report:
        self.targets, self.settings = list(targets), settings
        return self.answer(settings)


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    stand_in = Pipeline()
    monkeypatch.setattr(tclint.engine.check, "check", stand_in)
    return stand_in


def finding(level: Level, code: str = "AMP006", **evidence: object) -> Finding:
    return Finding(
        code=code,
        name="some-rule",
        level=level,
        confidence="high",
        message="Something is slow.",
        location=Location("train.py", 1),
        effect=Effect(unknown="not priced"),
        evidence=evidence,
    )


def error_line(result: Result) -> str:
    """The one line that stderr has."""
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


# --- which command runs


def test_check_is_the_default_command(run: Run, pipeline: Pipeline) -> None:
    assert run("model.py:build_model", "train.py").exit_code == 0
    assert pipeline.targets == ["model.py:build_model", "train.py"]
    assert run("check", "model.py:build_model").exit_code == 0
    assert pipeline.targets == ["model.py:build_model"]


def test_options_may_come_first(run: Run, pipeline: Pipeline) -> None:
    assert run("--gpu", "t4", "model.py:build_model").exit_code == 0
    assert pipeline.settings.gpus == ("t4",)


def test_commands_are_described_in_whole_sentences(run: Run) -> None:
    listed = run("--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert "..." not in listed
    entries = re.split(r"\n(?=  \S)", listed)
    assert len(entries) == len(cli.commands)
    assert all(entry.endswith(".") for entry in entries)
    assert "..." not in run("baseline", "--help").stdout.partition("Commands:\n")[2]


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert "tclint model.py:build_model" in result.stdout
    assert "explain" in result.stdout
    assert result.stderr == ""


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"tclint {__version__}\n"


def test_no_target_is_the_working_directory(run: Run, pipeline: Pipeline) -> None:
    for arguments in (("check",), ("--exit-zero",), ("fix",)):
        assert run(*arguments).exit_code == 0
        assert pipeline.targets == ["."]


def test_path_named_like_a_command_is_never_hidden(run: Run, pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    command = run("rules", "--isolated")
    assert command.exit_code == 0
    assert "'rules' is also a path here; 'tclint check rules' lints it" in command.stderr
    assert pipeline.targets is None
    assert run("check", "rules").exit_code == 0
    assert pipeline.targets == ["rules"]
    assert "is a command and a path here" in error_line(run("--verbose", "rules"))


def test_command_after_options_is_not_taken_for_a_target(run: Run, pipeline: Pipeline) -> None:
    assert "a command comes first: 'tclint gpus ...'" in error_line(run("-v", "gpus"))
    assert pipeline.targets is None


def test_mistyped_command(run: Run) -> None:
    said = error_line(run("explian", "DIM003"))
    assert said == "There is no command, file or folder 'explian'. Did you mean 'explain'?"


# --- exit codes


@pytest.mark.parametrize(
    ("level", "fail_on", "expected"),
    [
        ("error", "warning", 1),
        ("warning", "warning", 1),
        ("info", "warning", 0),
        ("warning", "error", 0),
        ("info", "info", 1),
        ("error", "never", 0),
    ],
)
def test_findings_at_fail_on_exit_with_1(
    run: Run, pipeline: Pipeline, level: Level, fail_on: str, expected: int
) -> None:
    pipeline.answer = lambda settings: Report(settings=settings, findings=(finding(level),))
    assert run("train.py", "--fail-on", fail_on).exit_code == expected


def test_exit_zero_forgives_findings_not_errors(run: Run, pipeline: Pipeline) -> None:
    pipeline.answer = lambda settings: Report(settings=settings, findings=(finding("error"),))
    assert run("train.py").exit_code == 1
    assert run("train.py", "--exit-zero").exit_code == 0
    pipeline.answer = lambda settings: Report(settings=settings, errors=(EntryError("m.py:f", "No."),))
    assert run("m.py:f", "--exit-zero").exit_code == 2


def test_crashed_rule_exits_with_2(run: Run, pipeline: Pipeline) -> None:
    crashed = finding("error", CRASH_CODE, traceback="Traceback\n  deep inside")
    pipeline.answer = lambda settings: Report(settings=settings, findings=(crashed,))
    result = run("train.py", "--debug", "--exit-zero")
    assert result.exit_code == 2
    assert "deep inside" in result.stderr


def test_interrupt_is_one_line_and_130(run: Run, pipeline: Pipeline) -> None:
    def interrupted(settings: Settings) -> Report:
        raise KeyboardInterrupt

    pipeline.answer = interrupted
    result = run("train.py")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


def test_internal_error_is_a_sentence_and_debug_shows_it(run: Run, pipeline: Pipeline) -> None:
    def broken(settings: Settings) -> Report:
        raise ZeroDivisionError("wave of no tiles\x1b[2J")

    pipeline.answer = broken
    said = error_line(run("train.py"))
    assert said.startswith("internal error, ZeroDivisionError: wave of no tiles\\x1b[2J")
    assert "--debug" in said
    debugged = run("train.py", "--debug")
    assert debugged.exit_code == 2
    assert "Traceback" in debugged.stderr
    assert "in broken" in debugged.stderr


def test_usage_error_of_the_pipeline(run: Run, pipeline: Pipeline) -> None:
    def refuse(settings: Settings) -> Report:
        raise UsageError("Unknown GPU 'a10O'. Did you mean 'a100'?")

    pipeline.answer = refuse
    assert error_line(run("train.py")) == "Unknown GPU 'a10O'. Did you mean 'a100'?"


# --- mistakes that are found before any work


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--gpuu", "t4", "m.py"),
            "There is no option '--gpuu'. Did you mean '--gpu'? See 'tclint check --help'.",
        ),
        (
            ("--precision", "bf61", "m.py"),
            "pure-bf16, fp8, int8, not 'bf61'. Did you mean 'bf16'?",
        ),
        (("--batch", "0", "m.py"), "--batch expects a whole number above 0, not '0'."),
        (("--gpus", "a100", "m.py"), "--gpus expects a number of GPUs (--gpu says which), not 'a100'."),
        (("--batch=-1", "m.py"), "--batch expects a whole number above 0, not '-1'."),
        (("--min-gain", "much", "m.py"), "--min-gain expects percent of the step"),
        (("--format", "jsn", "m.py"), "There is no format 'jsn'. Did you mean 'json'?"),
        (("--output", "report.json", "m.py"), "--output takes FORMAT=FILE, such as json=report.json"),
        (("--output", "jsn=x", "m.py"), "There is no format 'jsn'. Did you mean 'json'?"),
        (("--output", "json=none/x", "m.py"), "Cannot write 'none/x': the folder 'none' does not exist."),
        (("--output", "json=.", "m.py"), "Cannot write '.': it is a folder; name a file."),
        (("--output", "json=x", "--output", "text=./x", "m.py"), "--output names the file './x' twice"),
        (("--config", "none.toml", "m.py"), "There is no configuration file none.toml."),
        (("--config", "a", "--isolated", "m.py"), "--config and --isolated exclude each other"),
        (("gpus", "--format", "yaml"), "There is no format 'yaml'."),
        (("rules", "--gpu", "t4"), "There is no option '--gpu'. See 'tclint rules --help'."),
        (
            ("nonsense",),
            "There is no command, file or folder 'nonsense'. 'tclint --help' shows what there is.",
        ),
        (("explain",), "Missing argument 'RULE'. See 'tclint explain --help'."),
    ],
)
def test_mistakes(run: Run, pipeline: Pipeline, arguments: tuple[str, ...], said: str) -> None:
    assert said in error_line(run(*arguments))
    assert pipeline.targets is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "v10O", "m.py"), "Did you mean 'v100'?"),
        (("--select", "DMI003", "m.py"), "No rule is called 'DMI003'. Did you mean 'DIM003'?"),
        (("explain", "vocab-misalined"), "Did you mean 'vocab-misaligned'?"),
    ],
)
def test_unknown_names_have_the_closest(run: Run, arguments: tuple[str, ...], said: str) -> None:
    assert said in error_line(run(*arguments))


def test_mistake_in_the_configuration_names_the_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tclint]\nprecison = 'fp16'\n")
    assert error_line(run("m.py")).startswith("pyproject.toml:2: 'precison' is not a key")
    assert run("rules", "--isolated").exit_code == 0


# --- settings


def test_flags_win_over_the_file(run: Run, pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.tclint]\ngpu = 't4'\nprecision = 'fp32'\nbatch = 2\ncompiled = true\n"
    )
    run("m.py", "--precision", "bf16", "--no-compiled")
    assert pipeline.settings == Settings(gpus=("t4",), precision="bf16", batch=2, compiled=False)
    run("m.py", "--isolated")
    assert pipeline.settings == Settings()


def test_every_flag_reaches_its_setting(run: Run, pipeline: Pipeline) -> None:
    flags = (
        "--select DIM,AMP001 --select ARC --ignore DIM010 --extend-select RUN001 --gpu t4,a100 --gpu h100 "
        "--precision tf32 --mode infer --batch 32 --input 8,3,224,224 --input x=int64[8] --min-gain 2% "
        "--fail-on info --timeout 9.5 --memory-limit 2GiB --jobs 3 --compiled"
    )
    assert run("m.py:f", *flags.split()).exit_code == 0
    assert pipeline.settings == Settings(
        gpus=("t4", "a100", "h100"),
        precision="tf32",
        mode="infer",
        compiled=True,
        batch=32,
        inputs=("8,3,224,224", "x=int64[8]"),
        select=("DIM", "AMP001", "ARC"),
        extend_select=("RUN001",),
        ignore=("DIM010",),
        min_gain_percent=2.0,
        fail_on="info",
        timeout_s=9.5,
        memory_limit_mib=2048,
        jobs=3,
    )


def test_verbose_says_which_file_was_read(run: Run, pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tclint]\n")
    assert f"settings of {tmp_path / 'pyproject.toml'}" in run("m.py", "-v").stderr


# --- output


def test_machine_output_is_all_that_stdout_gets(run: Run, pipeline: Pipeline) -> None:
    pipeline.answer = lambda settings: Report(
        settings=settings, errors=(EntryError("m.py:f", "It hangs.", details="Traceback: here"),)
    )
    result = run("m.py:f", "--format", "json", "--debug")
    assert json.loads(result.stdout)["errors"] == [{"target": "m.py:f", "message": "It hangs."}]
    assert result.stderr.splitlines() == ["error: m.py:f: It hangs.", "--- m.py:f", "Traceback: here"]


def test_output_files_beside_stdout(run: Run, pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.answer = lambda settings: Report(settings=settings, findings=(finding("info"),))
    result = run("m.py", "--output", "json=r.json", "--output", "text=r=1.txt", "--statistics")
    assert "Something is slow." in result.stdout
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["findings"] == 1
    assert (tmp_path / "r=1.txt").read_text() == result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r=1.txt"]


def test_quiet_prints_findings_only(run: Run, pipeline: Pipeline) -> None:
    assert run("m.py", "-q").stdout == ""
    pipeline.answer = lambda settings: Report(settings=settings, findings=(finding("info"),))
    quiet = run("m.py", "-q").stdout
    assert "Something is slow." in quiet
    assert "1 finding" not in quiet


# --- catalogue


def test_rules_lists_every_rule_with_its_state(run: Run) -> None:
    rules = json.loads(run("rules", "--isolated", "--format", "json").stdout)["rules"]
    assert rules == sorted(rules, key=lambda rule: rule["code"])
    text = run("rules", "--isolated").stdout
    for rule in rules:
        assert f"{rule['code']} " in text
        assert rule["selected"] is rule["enabled_by_default"]
        assert rule["summary"]


def test_rules_shows_what_the_configuration_selects(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tclint]\nselect = ['DIM001']\n")
    rules = json.loads(run("rules", "--format", "json").stdout)["rules"]
    assert [rule["code"] for rule in rules if rule["selected"]] == ["DIM001"]


@pytest.mark.parametrize("name", ["DIM003", "dim003", "vocab-misaligned"])
def test_explain(run: Run, name: str) -> None:
    page = run("explain", name).stdout
    assert page.startswith("DIM003 vocab-misaligned\n")
    for heading in ("What it does", "Why it costs", "Use instead", "References"):
        assert f"\n{heading}\n" in page


def test_rules_have_pages(run: Run) -> None:
    """Some of them: tests/rules/test_docs.py reads the text of every rule."""
    for rule in json.loads(run("rules", "--isolated", "--format", "json").stdout)["rules"][::9]:
        result = run("explain", rule["code"])
        assert result.exit_code == 0
        data = json.loads(run("explain", rule["code"], "--format", "json").stdout)
        assert data["sections"]["What it does"]
        assert data["name"] == rule["name"]


def test_explain_knows_what_the_engine_reports(run: Run) -> None:
    assert "exit code is 2" in run("explain", "TCL001").stdout.replace("\n", " ")
    assert run("explain", "unused-suppression").exit_code == 0


def test_local_rules_are_listed_and_explained(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lint_rules").mkdir()
    (tmp_path / "lint_rules" / "mine.py").write_text(
        "from tclint.plugin import GraphRule\n"
        "class Mine(GraphRule):\n"
        '    """Ours alone.\n\n    What it does\n    It speaks to us.\n\n    Why it costs\n    Time.\n\n'
        "    Example\n        x\n\n    Use instead\n        y\n\n    When it does not apply\n    Never.\n"
        '    """\n'
        "    code, name, level, confidence = 'OUR001', 'our-own', 'info', 'low'\n"
        "    sources = ('The team',)\n"
        "    def check(self, context):\n        return iter(())\n"
        "RULES = (Mine,)\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.tclint]\nrules = ['lint_rules']\n")
    assert "OUR001  our-own" in run("rules").stdout
    assert "It speaks to us." in run("explain", "our-own").stdout
    assert error_line(run("explain", "our-own", "--isolated")).startswith("No rule is called 'our-own'.")


def test_a_rule_without_triggers_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from tclint.plugin import SourceRule\n"
        "class Mine(SourceRule):\n"
        "    code, name, level, confidence = 'OUR001', 'our-own', 'info', 'low'\n"
        "    sources = ('The team',)\n"
        "RULES = (Mine,)\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.tclint]\nrules = ['mine.py']\n")
    result = run("rules")
    assert result.exit_code == 2
    assert "mine.py: rule Mine needs `triggers`: a tuple of tokens" in error_line(result)


def test_gpus(run: Run) -> None:
    gpus = json.loads(run("gpus", "--format", "json").stdout)["gpus"]
    text = run("gpus").stdout
    assert {"a100-sxm4-80gb", "v100-sxm2-16gb"} <= {gpu["id"] for gpu in gpus}
    for gpu in gpus:
        assert f"\n{gpu['id']}" in text
        for calibration in gpu["calibrations"]:
            assert calibration["held_out_mean_percent"] >= 0
    details = run("gpus", "-v").stdout
    assert "also called a100" in details
    assert max(map(len, details.splitlines())) <= 96


def test_gpu_rows_show_held_out_errors(run: Run) -> None:
    gpus = json.loads(run("gpus", "--format", "json").stdout)["gpus"]
    _, *lines = run("gpus").stdout.split("\n\n")[0].splitlines()[1:]
    for gpu, line in zip(gpus, lines, strict=True):
        row = line.split()
        assert row[0] == gpu["id"]
        for calibration in gpu["calibrations"]:
            mark = "*" if calibration["inherited_from"] else ""
            error = f"{calibration['held_out_mean_percent']:.1f}"
            if calibration["kind"] == "traffic":
                low, _, high = row[-1].rstrip("*").partition("-")
                assert float(low) <= float(error) <= float(high or low)
            else:
                assert f"{error}{mark}" in row[2:]


def test_report_knows_its_settings(run: Run, pipeline: Pipeline) -> None:
    pipeline.answer = lambda settings: replace(Report(settings=settings), source_files=3)
    data = json.loads(run("m.py", "--format", "json", "--gpu", "t4").stdout)
    assert data["settings"]["gpus"] == ["t4"]
    assert data["summary"]["source_files"] == 3


def test_the_server_without_pygls_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("tclint.server", "pygls"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygls", None)
    result = CliRunner().invoke(cli, ["server"])
    assert result.exit_code == 2
    assert "install 'tensorcore-lint[lsp]'" in result.stderr


def test_a_group_without_a_command_is_one_sentence() -> None:
    result = CliRunner().invoke(cli, ["baseline"])
    assert result.exit_code == 2
    assert result.stderr == "error: Missing command. See 'tclint baseline --help'.\n"
