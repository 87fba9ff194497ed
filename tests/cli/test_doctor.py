"""`tclint doctor` and `tensorcore-lint`, as processes of their own, in installations made for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments; `path` comes first among what can be imported."""
    found = os.pathsep.join(str(one) for one in (path, ROOT) if one is not None)
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": found, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder with what pip notes of the other distribution."""
    noted = tmp_path / "site" / "tclint-0.5.1.dist-info"
    noted.mkdir(parents=True)
    (noted / "METADATA").write_text("Metadata-Version: 2.1\nName: tclint\nVersion: 0.5.1\n")
    return noted.parent


def without_torch(folder: Path) -> Path:
    """The folder, with a torch that cannot be imported: a trial would take seconds."""
    (folder / "torch.py").write_text("raise ImportError('libtorch.so is gone')")
    return folder


def test_both_commands_are_one(tmp_path: Path) -> None:
    results = [run("-m", name, "--version") for name in ("tclint", "tensorcore_lint")]
    assert [result.returncode for result in results] == [0, 0]
    assert results[0].stdout == results[1].stdout


def test_a_mixed_installation_is_refused_with_its_repair(other: Path) -> None:
    result = run("-m", "tensorcore_lint", "--version", path=other)
    assert (result.returncode, result.stdout) == (2, "")
    assert "tclint 0.5.1, a linter for Tcl" in result.stderr
    assert "pip uninstall -y tclint tensorcore-lint" in result.stderr
    # Nothing of the package is imported for that: it may be the other's.
    (other / "tclint").mkdir()
    (other / "tclint" / "__init__.py").write_text("raise SystemExit('IMPORTED')\n")
    assert "IMPORTED" not in run("-m", "tensorcore_lint", path=other).stderr


def test_doctor_says_what_there_is(tmp_path: Path, other: Path) -> None:
    result = run("-m", "tclint", "doctor", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert result.returncode == 0, result.stdout + result.stderr
    for word in (
        "tclint",
        "Python",
        "libcst",
        "whole",
        "torch",
        "tracing models          works",
        "cache of parsed files",
    ):
        assert word in result.stdout
    assert result.stdout.endswith("Nothing is wrong.\n")
    without_torch(other)
    result = run("-m", "tclint", "doctor", path=other)
    assert result.returncode == 1
    assert "problem: the distribution tclint 0.5.1" in result.stdout


@pytest.mark.parametrize(
    ("torch", "said", "code"),
    [
        (
            "raise ImportError('libtorch.so is gone')",
            "problem: torch cannot be imported (ImportError: lib",
            1,
        ),
        (
            "from types import SimpleNamespace as S\n__version__ = '2.9'\nversion = S(cuda='13.0')\n"
            "cuda = S(is_available=lambda: True, device_count=lambda: 1,\n"
            "  get_device_name=lambda n: 'NVIDIA H100 80GB HBM3')\n",
            "NVIDIA H100 80GB HBM3 (--gpu h100-",
            1,
        ),
    ],
)
def test_torch_and_the_gpu(tmp_path: Path, torch: str, said: str, code: int) -> None:
    pytest.importorskip("torch")
    (tmp_path / "torch.py").write_text(torch)
    result = run("-m", "tclint", "doctor", path=tmp_path)
    assert said in result.stdout
    assert result.returncode == code


def test_a_torch_that_traces_nothing_is_a_problem(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    # As a version that has renamed something that a trace needs.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tclint.tracing.session.trace':\n"
        "            raise ImportError('cannot import name X from torch')\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    result = run("-m", "tclint", "doctor", path=tmp_path)
    assert result.returncode == 1
    assert "tracing models          fails\n" in result.stdout
    assert "traces no model: " in result.stdout
    assert "cannot import name X from torch" in result.stdout


def test_a_cache_that_others_can_write_is_a_problem(tmp_path: Path) -> None:
    folder = tmp_path / "tclint" / "tables"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    result = run("-m", "tclint", "doctor", path=without_torch(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert result.returncode == 1
    assert "chmod 700" in result.stdout
