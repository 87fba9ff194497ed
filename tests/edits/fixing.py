"""What the tests of fixes share: a program fixed as the command would do it."""

from __future__ import annotations

from pathlib import Path

from tclint.config.settings import Settings
from tclint.engine.check import check
from tclint.engine.fixes.sources import FixOutcome, fix


def fixed(path: Path, settings: Settings, *, unsafe: bool = True) -> tuple[bytes, FixOutcome]:
    """The bytes that fixing a file would give, and the outcome; nothing is written."""
    report = check([str(path)], settings)
    outcome = fix(report, lambda contents: check([str(path)], settings, contents=contents), unsafe=unsafe)
    data = path.read_bytes()
    for file in outcome.files:
        assert file.path == str(path)
        assert file.before == data
        data = file.after
    return data, outcome
