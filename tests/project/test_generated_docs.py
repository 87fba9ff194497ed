"""The generated pages of docs/ are those that the code would write now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATE = ROOT / "docs" / "generate.py"


def test_no_page_is_stale() -> None:
    done = subprocess.run(
        [sys.executable, str(GENERATE), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run `python docs/generate.py`:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", ["docs/explanation/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:tclint|rules|tests|docs|benchmarks|fixtures)/[\w./-]*)`", text)
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []
