"""What reads source alone works where torch is not installed: notebooks, the pytest plugin, tables."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; import tclint; "


@pytest.mark.parametrize(
    "code",
    [
        "import tclint.integrations.notebook",
        "import tclint.integrations.pytest_plugin",
        "import tclint.integrations.frames",
        "import tclint.integrations.session",
    ],
)
def test_integrations_import(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
