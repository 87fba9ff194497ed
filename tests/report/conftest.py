"""A report with something of everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_report import BACKWARD, BELOW, ENTRY, MODEL, STEM, TRAIN, VOCABULARY

from tclint.config.settings import Settings
from tclint.engine.report import EntryError, Report
from tclint.source.syntax.discovery import Skipped


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
