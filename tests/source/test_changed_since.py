"""`--changed-since` on the command line, in a repository with history."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--format", "json"], catch_exceptions=False)


def files(*arguments: str) -> int:
    result = run(*arguments)
    report = json.loads(result.stdout)
    assert not report["errors"]
    count: int = report["summary"]["source_files"]
    return count


def test_only_files_that_differ_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("same.py", "changed.py", "gone.py", "sub/inner.py", "excluded.py"):
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "pyproject.toml").write_text('[tool.tclint]\nexclude = ["excluded.py"]\n')
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    assert files(".", "--changed-since", "HEAD") == 0
    for name in ("changed.py", "sub/inner.py", "excluded.py", "new.py"):
        (tmp_path / name).write_text("x = 2\n")
    (tmp_path / "gone.py").unlink()
    assert files(".") == 4
    assert files(".", "--changed-since", "HEAD") == 3
    assert files("sub", "--changed-since", "HEAD") == 1
    assert files("same.py", ".", "--changed-since", "HEAD") == 4, "a file that is named is read"


def test_a_revision_that_git_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n")
    subprocess.run(["git", "init", "-q"], check=True)
    result = run(".", "--changed-since", "nowhere")
    assert result.exit_code == 2
    assert "name a revision that this clone holds" in result.stderr
    assert run(".", "--changed-since=--output=x").exit_code == 2
