"""Models that are named on the command line are traced once."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

pytest.importorskip("torch")

NET = """\
from pathlib import Path

import torch
from torch import nn

from widths import WIDTH


def build():
    depth = int(Path("depth.txt").read_text())
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(depth)))


def example_inputs():
    return torch.zeros(4096, WIDTH)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, text in (("net.py", NET), ("widths.py", "WIDTH = 1021\n"), ("depth.txt", "2")):
        write(tmp_path / name, text)
    return tmp_path


def write(file: Path, text: str) -> None:
    """As it was long ago: what changes while it is traced is not kept."""
    file.write_text(text)
    os.utime(file, (1e9, 1e9))


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(
        cli, ["net.py:build", "--isolated", "--gpu", "a100", "-v", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 1, result.stderr
    return result


def test_an_unchanged_model_is_not_traced_again(repository: Path) -> None:
    first = run()
    assert "cache: net.py:build is traced: it was not traced yet" in first.stderr
    second = run()
    assert "cache: net.py:build is unchanged" in second.stderr
    assert run("--format", "json").stdout == run("--format", "json", "--no-cache").stdout
    assert "cache:" not in run("--no-cache").stderr
    # Prices are not kept: they are made afresh for other GPUs and rules.
    assert "is unchanged" in run("--gpu", "h100", "--select", "DIM").stderr


@pytest.mark.parametrize(
    ("name", "text"), [("widths.py", "WIDTH = 1019\n"), ("depth.txt", "3"), ("net.py", NET + "\n# more\n")]
)
def test_what_it_rests_on_counts(repository: Path, name: str, text: str) -> None:
    before = run("--format", "json").stdout
    write(repository / name, text)
    after = run("--format", "json")
    assert f"cache: net.py:build is traced: {name} changed" in after.stderr
    # What the findings say of the model, without the digest of the file that they show.
    said = [re.sub(r'"source_sha256": "\w+"', "", report) for report in (before, after.stdout)]
    assert (said[0] == said[1]) is (name == "net.py")


def test_settings_of_a_trace_count(repository: Path) -> None:
    run()
    assert "not traced with these settings yet" in run("--batch", "64").stderr
    assert "is unchanged" in run("--batch", "64").stderr


def test_a_package_that_was_absent_counts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(repository / "net.py", f"import charts_of_nobody\n{NET}")
    assert "charts_of_nobody is not installed here" in " ".join(run().stdout.split())
    assert "is unchanged" in run().stderr
    (repository / "more" / "charts_of_nobody").mkdir(parents=True)
    write(repository / "more" / "charts_of_nobody" / "__init__.py", "")
    monkeypatch.syspath_prepend(repository / "more")
    assert "cache: net.py:build is traced: charts_of_nobody is there now" in run().stderr


def test_nobody_elses_folder_is_used(repository: Path) -> None:
    folder = repository / "cache" / "tclint" / "models"
    folder.mkdir(parents=True, mode=0o777)
    folder.chmod(0o777)
    assert "cache:" not in run().stderr
    assert list(folder.iterdir()) == []
