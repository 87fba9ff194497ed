"""`tclint rules --new`: what it writes is a rule that loads, finds, fixes and passes its test."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from in_process import tclint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    done = tclint("rules", "--new", "OPS001", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / line).is_file() for line in done.stdout.splitlines())
    assert 'rules = ["./lint_rules"]' in done.stderr
    assert "'python -m pytest tests/test_ops001.py' tests it" in done.stderr
    (tmp_path / "pyproject.toml").write_text('[tool.tclint]\nrules = ["./lint_rules"]\n')
    return tmp_path


def test_it_passes_its_own_test(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    test = runpy.run_path(str(folder / "tests" / "test_ops001.py"))
    test["test_rule_does_what_its_examples_say"]()


def test_it_is_loaded_and_fixes(folder: Path) -> None:
    assert "OPS001" in tclint("rules", cwd=folder).stdout
    examples = folder / "examples" / "OPS001"
    found = tclint("check", "examples", "--select", "OPS001", cwd=folder)
    assert found.stdout.startswith("examples/OPS001/invalid_every_batch.py:7:5: warning OPS001 ops001")
    tclint("fix", "examples", "--select", "OPS001", "--unsafe-fixes", cwd=folder)
    fixed = (examples / "invalid_every_batch.fixed.py").read_text()
    assert (examples / "invalid_every_batch.py").read_text() == fixed


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("OPS001", "OPS001 is a rule, or was one; choose another code."),
        ("ARC011", "ARC011 is a rule, or was one; choose another code."),
        ("ops", "'ops' is no code; give two to six capital letters and three digits: OUR001."),
    ],
)
def test_codes_that_it_does_not_take(folder: Path, code: str, says: str) -> None:
    done = tclint("rules", "--new", code, cwd=folder)
    assert (done.returncode, done.stderr) == (2, f"error: {says}\n")


def test_no_file_is_written_over(folder: Path) -> None:
    (folder / "pyproject.toml").unlink()  # nothing says that the rule is there
    done = tclint("rules", "--new", "OPS001", cwd=folder)
    assert done.returncode == 2
    assert "lint_rules/ops001.py exists already" in done.stderr
