"""What a wheel would leave out is noticed here rather than by a user."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def setuptools_table() -> dict[str, object]:
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    return table


def folders_with(pattern: str) -> set[str]:
    found = {path.parent for name in ("tclint", "rules") for path in (ROOT / name).rglob(pattern)}
    names = {".".join(folder.relative_to(ROOT).parts) for folder in found}
    return {name.replace("rules", "tclint_rules", 1) if name.startswith("rules") else name for name in names}


def test_every_package_is_installed(setuptools_table: dict[str, object]) -> None:
    assert folders_with("*.py") == set(setuptools_table["packages"])  # type: ignore[call-overload]


@pytest.mark.parametrize("suffix", ["toml", "json", "html", "css", "js"])
def test_every_data_file_is_installed(setuptools_table: dict[str, object], suffix: str) -> None:
    data: dict[str, list[str]] = setuptools_table["package-data"]  # type: ignore[assignment]
    covered = {package for package, patterns in data.items() if f"*.{suffix}" in patterns}
    assert folders_with(f"*.{suffix}") <= covered
