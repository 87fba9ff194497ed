"""Both hooks under the real pre-commit, on a git repository made here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("pre_commit")
if shutil.which("git") is None:
    pytest.skip("git is not installed", allow_module_level=True)

BAD_TRAINING = """\
import torch

scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    optimizer.step()
    scaler.update()
"""
MODEL = """\
import torch
from torch import nn
from widths import WIDTH

def build_model():
    return nn.Sequential(nn.Linear(1024, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1024)), torch.zeros(4096, 1024)
"""
CONFIG = '[tool.tclint]\ngpu = ["a100"]\nselect = ["DIM001", "AMP"]\n'


def _run(folder: Path, *command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def _git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def _commit(folder: Path) -> None:
    _git(folder, "init", "-q")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-qm", "all", "--no-verify")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with this working tree as its one commit."""
    folder = tmp_path_factory.mktemp("hooks") / "tclint"
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("tclint", "rules"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    _commit(folder)
    return folder


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where `tclint` is this one, in the environment that has torch."""
    programs = tmp_path_factory.mktemp("bin")
    wrapper = programs / "tclint"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m tclint "$@"\n')
    wrapper.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON"))}
    home = tmp_path_factory.mktemp("pre-commit")
    return {**env, "PATH": f"{programs}{os.pathsep}{env['PATH']}", "PRE_COMMIT_HOME": str(home)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "bad train.py").write_text(BAD_TRAINING)
    (folder / "fine.py").write_text("print('nothing to see')\n")
    (folder / "notes.txt").write_text("no Python\n")
    (folder / "model.py").write_text(MODEL)
    (folder / "widths.py").write_text("WIDTH = 4001\n")
    (folder / "pyproject.toml").write_text(CONFIG + 'models = ["model.py:build_model"]\n')
    _commit(folder)
    return folder


def _try_repo(project: Path, hooks: Path, env: dict[str, str], *arguments: str):
    command = (sys.executable, "-m", "pre_commit", "try-repo", str(hooks), *arguments)
    return _run(project, *command, env=env)


def _skip_if_offline(output: str) -> None:
    for sign in ("Could not find a version", "Temporary failure in name resolution", "NewConnectionError"):
        if sign in output:
            pytest.skip(f"pip cannot install the source hook's dependencies here: {sign}")


def test_source_hook_in_its_own_environment(project: Path, hooks: Path, env: dict[str, str]) -> None:
    """Both hooks by try-repo, then the source hook on subsets of files, in one installed environment."""
    both = _try_repo(project, hooks, env, "--all-files", "--verbose")
    _skip_if_offline(both.stdout + both.stderr)
    assert both.returncode == 1, both.stdout + both.stderr
    source, model = both.stdout.split("hook id: tclint-model")
    assert "bad train.py:8:" in source
    assert "AMP" in source
    assert "widths.py" not in source
    assert "DIM001" in model
    assert "4001" in model

    revision = _git(hooks, "rev-parse", "HEAD").strip()
    (project / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: file://{hooks}\n    rev: {revision}\n    hooks:\n      - id: tclint\n"
    )
    _git(project, "add", "-A")

    def hook(*files: str) -> subprocess.CompletedProcess[str]:
        return _run(project, sys.executable, "-m", "pre_commit", "run", "--files", *files, env=env)

    clean = hook("fine.py", "notes.txt")
    assert (clean.returncode, "Passed" in clean.stdout) == (0, True), clean.stdout + clean.stderr
    one = hook("fine.py", "bad train.py")
    assert one.returncode == 1
    assert "bad train.py:8:" in one.stdout
    none = hook("notes.txt")
    assert (none.returncode, "Skipped" in none.stdout) == (0, True), none.stdout + none.stderr


def test_model_hook(project: Path, hooks: Path, env: dict[str, str]) -> None:
    def hook(*arguments: str) -> subprocess.CompletedProcess[str]:
        return _try_repo(project, hooks, env, "tclint-model", "--verbose", *arguments)

    # Whichever Python file is committed, the declared models are what is linted.
    first = hook("--files", "fine.py")
    assert first.returncode == 1, first.stdout + first.stderr
    assert "DIM001" in first.stdout
    assert "4001" in first.stdout
    assert "bad train.py" not in first.stdout
    assert (project / ".tclint_cache").is_dir()
    assert ".tclint_cache" not in _git(project, "status", "--porcelain")  # it ignores itself

    (project / "widths.py").write_text("WIDTH = 4096\n")
    fixed = hook("--files", "widths.py")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert "DIM001" not in fixed.stdout

    none = hook("--files", "notes.txt")
    assert (none.returncode, "Skipped" in none.stdout) == (0, True)


def test_model_hook_without_declared_models(project: Path, hooks: Path, env: dict[str, str]) -> None:
    (project / "pyproject.toml").write_text(CONFIG)
    result = _try_repo(project, hooks, env, "tclint-model", "--verbose", "--all-files")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no models are declared in" in result.stdout
