"""What a wheel would leave out is noticed here rather than by a user."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tclint.core.toml import parse_toml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def setuptools_table() -> dict[str, object]:
    table: dict[str, object] = parse_toml((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
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


def test_the_sdist_holds_all_that_is_tracked(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("there is no repository to compare with")
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    tracked = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    source = tmp_path / "source"
    for name in tracked:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
    of_the_repository = (".github/", ".gitignore", ".pre-commit-config.yaml")
    missing = {name for name in tracked if not name.startswith(of_the_repository)} - packed
    assert not missing
