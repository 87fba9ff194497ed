"""Which files are tests."""

from __future__ import annotations

import os


def is_test_path(path: str) -> bool:
    """Whether a file is a test by its name or the folder it lies in."""
    folder, name = os.path.split(path.lower())
    return (
        name.startswith(("test_", "tests", "conftest"))
        or name.endswith("_test.py")
        or os.path.basename(folder) in ("test", "tests", "testing", "unit_tests", "unittests")
    )
