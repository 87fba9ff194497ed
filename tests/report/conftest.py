"""A report with something of everything."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sample_report import BACKWARD, BELOW, ENTRY, MODEL, STEM, TRAIN, VOCABULARY, Skipped

from tclint.config.settings import Settings
from tclint.engine.report import EntryError, Report


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """A report with something of everything, run in a folder that holds its files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(TRAIN)
    return Report(
        settings=Settings(gpus=("a100-sxm4-80gb", "v100-sxm2-16gb")),
        entries=(ENTRY,),
        findings=(BACKWARD, VOCABULARY, STEM),
        below_min_gain=(BELOW,),
        suppressed=(BELOW, BELOW),
        skipped=(Skipped("generated.py", "larger than 1 MiB"),),
        errors=(
            EntryError(
                "broken.py:build",
                "broken.py:build raised ValueError: no such size.",
                details="Traceback ...\nValueError: no such size",
                captured_output="loading\n",
            ),
        ),
        source_files=14,
    )


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """Runs git in the test's folder, with an author and a time of its own and no outer configuration."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    identity = {
        f"GIT_{role}_{name}": value
        for role in ("AUTHOR", "COMMITTER")
        for name, value in (("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "2026-01-02T03:04:05+0000"))
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    return run
