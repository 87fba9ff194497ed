"""`tclint -`: source from standard input, under the name and settings of its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

BEFORE = """\
import torch
from torch.nn.utils import clip_grad_norm_

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
AFTER = BEFORE.replace("    clip", "    scaler.unscale_(optimizer)\n    clip")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, source: str | bytes = BEFORE) -> Result:
    return CliRunner().invoke(cli, arguments, input=source)


def test_what_is_given_counts_not_what_is_saved(folder: Path) -> None:
    (folder / "net.py").write_text("# saved, and other\n")
    result = run("-", "--stdin-filename", "net.py")
    assert result.exit_code == 1
    assert "net.py:7:5: error AMP003" in result.stdout
    assert "7 |     clip_grad_norm_(model.parameters(), 1.0)" in result.stdout, "of the given text"
    assert (folder / "net.py").read_text() == "# saved, and other\n"


def test_the_file_need_not_exist_and_every_format_knows_its_name(folder: Path) -> None:
    for name, wanted in (("concise", "new/net.py:7:5"), ("sarif", "new/net.py"), ("github", "new/net.py")):
        assert wanted in run("-", "--stdin-filename", "new/net.py", "--format", name).stdout, name
    found = json.loads(run("-", "--format", "json").stdout)["findings"]
    assert {one["location"]["path"] for one in found} == {"stdin.py"}


def test_the_nearest_configuration_of_the_name_holds(folder: Path) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "pyproject.toml").write_text('[tool.tclint]\nignore = ["AMP"]\n')
    assert run("-", "--stdin-filename", "project/net.py").exit_code == 0
    assert run("-", "--stdin-filename", "net.py").exit_code == 1


def test_fix_writes_the_source_to_stdout_and_the_report_to_stderr(folder: Path) -> None:
    result = run("-", "--fix")
    assert (result.exit_code, result.stdout) == (0, AFTER)
    assert "fixed 1 finding in 1 file" in result.stderr
    assert "stdin.py:6:5: info AMP012" in result.stderr
    assert run("-", "--fix", source=AFTER).stdout == AFTER, "nothing to fix: the source as it is"
    assert run("fix", "-", "--quiet").stdout == AFTER
    assert list(folder.iterdir()) == []


def test_fix_keeps_what_it_cannot_read(folder: Path) -> None:
    broken = "import torch\nscaler = (\n"
    result = run("-", "--fix", source=broken)
    assert (result.exit_code, result.stdout) == (1, broken)
    assert "TCL003" in result.stderr


def test_diff_shows_what_fix_would_do(folder: Path) -> None:
    result = run("-", "--diff", "--stdin-filename", "net.py")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:2] == ["--- net.py", "+++ net.py"]
    assert "+    scaler.unscale_(optimizer)" in result.stdout


def test_a_baseline_forgets_nothing_because_of_unsaved_text(folder: Path) -> None:
    (folder / "net.py").write_text(BEFORE)
    assert run("baseline", "write", "net.py").exit_code == 0
    accepted = (folder / "tclint-baseline.json").read_text()
    flags = ("--stdin-filename", "net.py", "--baseline", "tclint-baseline.json")
    assert run("-", *flags).exit_code == 0, "the finding is accepted"
    assert run("-", *flags, source=AFTER).exit_code == 0
    assert (folder / "tclint-baseline.json").read_text() == accepted


def test_notebooks(folder: Path) -> None:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": BEFORE.splitlines(keepends=True)}
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    result = run("-", "--fix", "--stdin-filename", "net.ipynb", source=notebook)
    assert "".join(json.loads(result.stdout)["cells"][0]["source"]) == AFTER


def test_refusals(folder: Path) -> None:
    for arguments, sentence in (
        (("-", "other.py"), "'-' reads standard input and stands alone"),
        (("net.py", "--stdin-filename", "net.py"), "--stdin-filename goes with the target '-'"),
        (("-", "--stdin-filename", "net.txt"), "neither a folder nor a Python file"),
        (("--models", "-"), "--models takes no '-'"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert sentence in result.output
