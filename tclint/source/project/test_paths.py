"""Recognises test files."""

from __future__ import annotations

import os


def is_test_path(path: str) -> bool:
    """Whether a file is a test according to its name or its folder."""
    folder, name = os.path.split(path.lower())
    return (
        name.startswith(("test_", "tests", "conftest"))
        or name.endswith("_test.py")
        or os.path.basename(folder) in ("test", "tests", "testing", "unit_tests", "unittests")
    )
