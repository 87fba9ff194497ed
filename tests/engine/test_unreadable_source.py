"""Files that Python cannot read, on the command line: findings that end in 1 and hide nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli
from tclint.report.render import FORMATS

GOOD = """\
import torch
from torch.nn.utils import clip_grad_norm_

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
BROKEN = "import torch\n\ndef f(:\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / ".git").mkdir()
    (tmp_path / "bad.py").write_text(BROKEN)
    (tmp_path / "latin.py").write_bytes(b"import torch\ns = '\xe9'\n")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--isolated"], catch_exceptions=False)


def found(*arguments: str) -> list[tuple[str, str, int, int]]:
    places = [
        (one["code"], one["location"])
        for one in json.loads(run(*arguments, "--format", "json").stdout)["findings"]
    ]
    return [(code, place["path"], place["line"], place["column"]) for code, place in places]


@pytest.mark.parametrize("targets", [("bad.py", "latin.py"), (".",)])
def test_they_are_errors_with_a_place(folder: Path, targets: tuple[str, ...]) -> None:
    result = run(*targets)
    assert result.exit_code == 1
    assert "bad.py:3:7: error TCL003 unreadable-source" in result.stdout
    assert "latin.py:2:6: error TCL003 unreadable-source" in result.stdout
    assert "No findings" not in result.stdout
    assert "skipped" not in result.stdout
    assert found(*targets) == [("TCL003", "bad.py", 3, 7), ("TCL003", "latin.py", 2, 6)]
    assert run(*targets, "--fail-on", "never").exit_code == 0
    assert run(*targets, "--exit-zero").exit_code == 0


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_them(folder: Path, name: str) -> None:
    result = run(".", "--format", name)
    assert result.exit_code == 1
    assert "TCL003" in result.stdout or "unreadable-source" in result.stdout


def test_they_are_explained() -> None:
    assert "Python cannot read" in run("explain", "TCL003").stdout
    assert run("explain", "unreadable-source").exit_code == 0


def test_they_are_selected_and_ignored_as_rules_are(folder: Path) -> None:
    assert {code for code, *_ in found(".", "--select", "AMP")} == {"TCL003"}
    assert len(found(".", "--select", "TCL003")) == 2
    for selector in ("TCL003", "TCL", "unreadable-source"):
        result = run(".", "--ignore", selector)
        assert (result.exit_code, found(".", "--ignore", selector)) == (0, [])
    (folder / "bad.py").write_text(BROKEN + "# tclint: file-ignore[TCL003] a template\n")
    assert found(".") == [("TCL003", "latin.py", 2, 6)]
    assert run(".", "--ignore", "TCL009").exit_code == 2
    config = folder / "own.toml"
    config.write_text('[tool.tclint]\n[[tool.tclint.overrides]]\npaths = ["latin.py"]\nignore = ["TCL003"]\n')
    result = CliRunner().invoke(cli, [".", "--config", str(config)])
    assert (result.exit_code, "No findings" in result.stdout) == (0, True)


def test_no_baseline_takes_them_and_none_shrinks_by_them(folder: Path) -> None:
    file = folder / "known.json"
    (folder / "train.py").write_text(GOOD)
    written = run("baseline", "write", ".", "--baseline", str(file))
    assert written.exit_code == 0
    assert "bad.py:3:7" in written.stderr
    accepted = json.loads(file.read_text())["findings"]
    assert {one["path"] for one in accepted} == {"train.py"}
    assert run(".", "--baseline", str(file)).exit_code == 1

    (folder / "train.py").write_text(GOOD + "def f(:\n")
    result = run(".", "--baseline", str(file))
    assert "train.py:10:7: error TCL003" in result.stdout
    assert json.loads(file.read_text())["findings"] == accepted
    assert run("baseline", "write", ".", "--baseline", str(file)).exit_code == 0
    assert json.loads(file.read_text())["findings"] == accepted


@pytest.mark.parametrize("command", [("fix",), ("fix", "--diff"), ("check", "--diff")])
def test_what_only_fixes_says_so(folder: Path, command: tuple[str, ...]) -> None:
    (folder / "train.py").write_text(GOOD)
    result = run(*command, ".")
    assert result.exit_code == 2
    assert "error: bad.py:3:7: Python cannot read this file" in result.stderr
    assert "1 finding in 1 file" in result.stderr
    assert run("check", "--fix", ".").exit_code == 1
    assert "scaler.unscale_(" in (folder / "train.py").read_text()
    assert (folder / "bad.py").read_text() == BROKEN


def test_a_file_of_a_newer_python_is_no_error(folder: Path) -> None:
    # What either parser reads is Python: libcst knows this syntax whatever Python runs it.
    (folder / "new.py").write_text("import torch\ntype Pair[T] = tuple[T, T]\nprint(f'{'nested'}')\n")
    assert found("new.py") == []
