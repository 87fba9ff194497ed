"""Both hooks under the real pre-commit, on a git repository made here.

The source hook runs here as a `system` hook with what pip would install for it and nothing else: building its
environment takes a minute. CI installs the wheel (the job `wheel`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from canary import SHADOWS, Canaries
from packaging.requirements import Requirement

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
    """A repository with the hooks; pre-commit installs nothing for them."""
    folder = tmp_path_factory.mktemp("hooks") / "tclint"
    folder.mkdir()
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    (folder / ".pre-commit-hooks.yaml").write_text(text.replace("language: python", "language: system"))
    _commit(folder)
    return folder


def _environment(folder: Path, command: str) -> dict[str, str]:
    """Where `tclint` is this one, run by a command."""
    wrapper = folder / "tclint"
    wrapper.write_text(f'#!/bin/sh\n{command} "$@"\n')
    wrapper.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON"))}
    return {**env, "PATH": f"{folder}{os.pathsep}{env['PATH']}", "PRE_COMMIT_HOME": str(folder / "home")}


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory, python_m_tclint: list[str]) -> dict[str, str]:
    """With torch, as where a project runs."""
    return _environment(tmp_path_factory.mktemp("bin"), f"exec {shlex.join(python_m_tclint)}")


@pytest.fixture(scope="module")
def hook_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With tclint and the dependencies that it declares, as pip installs them for the source hook."""
    folder, packages = tmp_path_factory.mktemp("hook"), tmp_path_factory.mktemp("packages")
    (packages / "tclint").symlink_to(ROOT / "tclint")
    (packages / "tclint_rules").symlink_to(ROOT / "rules")
    for one in _with_dependencies("tensorcore-lint"):
        own = one.name == "tensorcore-lint"  # of an editable installation, only what it says of itself
        tops = {Path(file.parts[0]) for file in one.files or () if not own or ".dist-info" in file.parts[0]}
        assert tops, f"{one.name} is not installed"
        for top in tops - {Path(".."), Path("__pycache__")}:
            (packages / top).symlink_to(one.locate_file(top))
    return _environment(folder, f'PYTHONPATH="{packages}" exec "{sys.executable}" -S -m tclint')


def _with_dependencies(name: str) -> Iterator[metadata.Distribution]:
    seen, left = set(), [name]
    installed = [folder for folder in sys.path if Path(folder).resolve() != ROOT]
    while left:
        # Not what an editable installation leaves in the source folder, where pytest may look first.
        (one, *_) = metadata.distributions(name=left.pop(), path=installed)
        if one.name not in seen:
            seen.add(one.name)
            yield one
            needs = map(Requirement, one.requires or ())
            left += [
                need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})
            ]


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


def test_what_pre_commit_installs_for_the_source_hook() -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    source = hooks["tclint"]
    assert (source["language"], hooks["tclint-model"]["language"]) == ("python", "system")
    assert "additional_dependencies" not in source
    [script] = metadata.entry_points(group="console_scripts", name=source["entry"].split()[0])
    assert script.dist is not None
    assert script.dist.name == "tensorcore-lint"


def test_source_hook(project: Path, hooks: Path, hook_env: dict[str, str]) -> None:
    """By try-repo on all files, then from a configuration on subsets of them."""
    every = _try_repo(project, hooks, hook_env, "tclint", "--all-files", "--verbose")
    assert every.returncode == 1, every.stdout + every.stderr
    assert "bad train.py:8:" in every.stdout
    assert "AMP" in every.stdout
    assert "widths.py" not in every.stdout
    # Nothing else is to be had there.
    lacks = _run(project, "tclint", "model.py:build_model", env=hook_env)
    assert (lacks.returncode, "needs PyTorch" in lacks.stdout) == (2, True), lacks.stdout + lacks.stderr

    revision = _git(hooks, "rev-parse", "HEAD").strip()
    (project / "legacy").mkdir()
    (project / "legacy" / "old.py").write_text(BAD_TRAINING)
    (project / "pyproject.toml").write_text(CONFIG + 'exclude = ["legacy/"]\n')
    (project / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: file://{hooks}\n    rev: {revision}\n    hooks:\n      - id: tclint\n"
    )
    _git(project, "add", "-A")

    def hook(*files: str) -> subprocess.CompletedProcess[str]:
        return _run(project, sys.executable, "-m", "pre_commit", "run", "--files", *files, env=hook_env)

    clean = hook("fine.py", "notes.txt")
    assert (clean.returncode, "Passed" in clean.stdout) == (0, True), clean.stdout + clean.stderr
    one = hook("fine.py", "bad train.py", "legacy/old.py")
    assert one.returncode == 1
    assert "bad train.py:8:" in one.stdout
    assert "legacy" not in one.stdout
    none = hook("notes.txt")
    assert (none.returncode, "Skipped" in none.stdout) == (0, True), none.stdout + none.stderr


def test_source_hook_only_reads(tmp_path: Path, hooks: Path, hook_env: dict[str, str]) -> None:
    (tmp_path / "project").mkdir()
    canaries = Canaries(tmp_path / "project", tmp_path / "marks")
    # pre-commit itself runs git, which runs these, and as a module it finds what lies in the folder.
    for key in ("core.fsmonitor", "filter.x.clean"):
        canaries.git("config", "--unset", key)
    for name in SHADOWS:
        (canaries.folder / f"{name}.py").unlink()
    canaries.ran()
    done = _try_repo(canaries.folder, hooks, hook_env, "tclint", "--all-files", "--verbose")
    assert "vendor/lib/train.py:3:" in done.stdout, done.stdout + done.stderr
    assert canaries.ran() <= {"hook"}


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
    result = _try_repo(project, hooks, env, "tclint-model", "--all-files")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no models are declared in" in result.stdout
