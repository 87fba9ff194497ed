"""The generated pages of docs/ are those that the code would write now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GENERATE = Path(__file__).parent.parent / "docs" / "generate.py"


def test_no_page_is_stale() -> None:
    done = subprocess.run(
        [sys.executable, str(GENERATE), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run `python docs/generate.py`:\n{done.stdout}{done.stderr}"
