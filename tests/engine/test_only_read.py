"""Files and folders are only read: nothing in them runs, whatever it is (README, "What it does not do")."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from canary import Canaries
from click.testing import CliRunner, Result

from tclint.cli.main import cli

needs_git = pytest.mark.skipif(shutil.which("git") is None or os.name == "nt", reason="needs git and sh")


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canaries]:
    (tmp_path / "project").mkdir()
    planted = Canaries(tmp_path / "project", tmp_path / "marks")
    monkeypatch.chdir(planted.folder)
    planted.ran()
    yield planted
    assert planted.ran() == set()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    "arguments",
    [
        (".",),
        ("vendor/lib",),
        ("vendor/lib/train.py", "train.ipynb", "--format", "sarif", "--output", "html=r.html"),
        ("--models", "."),
        ("models", "."),
        ("fix", ".", "--unsafe-fixes", "--diff"),
        ("baseline", "write", "."),
    ],
)
def test_commands_that_read(canaries: Canaries, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == (1 if "--diff" in arguments else 0), result.output


@needs_git
def test_comparing_with_a_revision(canaries: Canaries) -> None:
    result = run(".", "--changed-since", "HEAD")
    assert result.exit_code == 0, result.output
    assert canaries.ran() == set()
    # What was planted does run where nobody takes care.
    canaries.git("status")
    assert canaries.ran() == {"fsmonitor", "filter", "hook"}


def test_modules_of_the_folder_stand_for_none_of_the_tools(canaries: Canaries) -> None:
    """Also where Python itself puts the folder first on its path."""
    command = [sys.executable, "-m", "tclint", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "AMP014" in done.stdout) == (0, True), done.stdout + done.stderr
    assert canaries.ran() == set()
    subprocess.run([sys.executable, "-c", "import click, evil"], check=True)
    assert canaries.ran() == {"click.py", "entry point"}


def test_what_a_nested_file_names_is_said_once_and_not_run(canaries: Canaries) -> None:
    result = run(".", "vendor/lib", "vendor/lib/train.py", "--format", "concise")
    assert result.exit_code == 0
    assert result.stderr.count("vendor/lib/pyproject.toml names local rules") == 1
    assert "declares 1 model" not in result.stderr, "this run builds none"
    assert "vendor/lib/train.py:3" in result.stdout, "what it selects beside its own rules is checked"
    assert run("--models").stderr.count("declares 1 model that this run does not build") == 1
    # A run that is asked for them has them.
    assert run(".", "--config", "vendor/lib/pyproject.toml", "--select", "AMP").exit_code == 0
    assert canaries.ran() == {"local rules"}


def test_a_selection_of_rules_that_do_not_run_selects_nothing(canaries: Canaries) -> None:
    file = canaries.folder / "vendor" / "lib" / "pyproject.toml"
    file.write_text('[tool.tclint]\nrules = ["lint_rules.py"]\nselect = ["EVIL001"]\n')
    assert run("vendor/lib").stdout.startswith("No findings in ")
    file.write_text('[tool.tclint]\nselect = ["EVIL001"]\n')
    assert "No rule is called 'EVIL001'" in run("vendor/lib").stderr


def test_local_rules_of_the_run_hold_in_nested_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.tclint]\nrules = ["mine.py"]\n')
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.tclint]\nextend = "../pyproject.toml"\n')
    (tmp_path / "a" / "code.py").write_text("import torch\n\nuse_it(torch)\n")
    (tmp_path / "mine.py").write_text(
        "from tclint.plugin import Location, SourceRule\n"
        "class Mine(SourceRule):\n"
        '    """Ours.\n\n    What it does\n    x\n\n    Why it costs\n    x\n\n    Example\n        x\n\n'
        '    Use instead\n        y\n\n    When it does not apply\n    x\n    """\n'
        "    code, name, level, confidence = 'OUR001', 'our-own', 'info', 'low'\n"
        "    sources, triggers = ('The team',), ('use_it',)\n"
        "    def check(self, context):\n"
        "        yield self.finding(Location(context.path, 3, 1), 'It is used.')\n"
        "RULES = (Mine,)\n"
    )
    for target in (".", "a", "a/code.py"):
        result = run(target, "--select", "OUR001", "--format", "concise")
        assert (result.stdout.count("a/code.py:3:1"), result.stderr) == (1, "")


def test_what_a_nested_file_extends_lies_in_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "a").mkdir(parents=True)
    (project / "pyproject.toml").write_text("[tool.tclint]\n")
    (tmp_path / "outside.toml").write_text('[tool.tclint]\nignore = ["AMP014"]\n')
    (project / "link.toml").symlink_to(tmp_path / "outside.toml")
    (project / "inside.toml").write_text('[tool.tclint]\nignore = ["AMP014"]\n')
    (project / "a" / "train.py").write_text("import torch\n\nscaler = torch.cuda.amp.GradScaler()\n")
    monkeypatch.chdir(project)
    for base, is_read in (
        ("../../outside.toml", False),
        (str(tmp_path / "outside.toml"), False),
        ("../link.toml", False),
        ("../../no-such-file.toml", False),
        ("../inside.toml", True),
    ):
        (project / "a" / "pyproject.toml").write_text(f'[tool.tclint]\nextend = "{base}"\n')
        result = run("a", "--format", "concise")
        assert ("AMP014" not in result.stdout) == is_read, base
        assert ("which is not read" in result.stderr) != is_read, base
    # The run's own file may extend what it likes.
    monkeypatch.chdir(project / "a")
    (project / "a" / "pyproject.toml").write_text('[tool.tclint]\nextend = "../../outside.toml"\n')
    assert "AMP014" not in run(".").stdout


@needs_git
def test_git_fetches_nothing_for_a_reader(canaries: Canaries) -> None:
    """A clone without all objects asks its remote, which may be a program."""
    program = canaries.program("remote")
    for key, value in {
        "remote.o.url": f"ext::{program}",
        "remote.o.promisor": "true",
        "extensions.partialClone": "o",
        "protocol.ext.allow": "always",
    }.items():
        canaries.git("config", key, value)
    started = time.monotonic()
    assert run(".", "--changed-since", 40 * "a").exit_code == 2
    assert time.monotonic() - started < 60
