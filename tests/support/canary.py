"""A folder in which everything that could run when it is read says so when it does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

SHADOWS = ("click", "json", "libcst", "numpy", "pathspec", "sitecustomize", "tclint_rules", "torch")
"""Modules that tclint or Python imports, by the names of files beside what is linted."""
TRAINING = "import torch\n\nscaler = torch.cuda.amp.GradScaler()\n"


class Canaries:
    """Files that leave a mark in a folder of their own when they run."""

    def __init__(self, folder: Path, marks: Path) -> None:
        """Fill `folder`, a repository of git if git is installed; `marks` is a new folder outside of it."""
        self.folder, self._marks = folder, marks
        marks.mkdir()
        nested = folder / "vendor" / "lib"
        nested.mkdir(parents=True)
        (folder / "pyproject.toml").write_text('[tool.tclint]\nfail-on = "never"\n')
        (folder / "train.py").write_text(TRAINING + self.code("train.py"))
        cell = {"cell_type": "code", "source": TRAINING + self.code("notebook"), "outputs": []}
        notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (folder / "train.ipynb").write_text(json.dumps(notebook))
        for name in (*SHADOWS, "conftest", "setup", "__init__"):
            (folder / f"{name}.py").write_text(self.code(f"{name}.py"))
        info = folder / "evil-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[tclint.rules]\nevil = evil\n")
        (folder / "evil.py").write_text(self.code("entry point") + "RULES = ()\n")

        (nested / "pyproject.toml").write_text(
            '[tool.tclint]\nrules = ["lint_rules.py"]\nselect = ["EVIL001", "AMP014"]\n'
            'models = ["net.py:build"]\n'
        )
        (nested / "lint_rules.py").write_text(self.code("local rules") + "RULES = ()\n")
        (nested / "net.py").write_text(f"def build():\n    {self.code('model')}    return None\n")
        (nested / "train.py").write_text(TRAINING + self.code("nested train.py"))
        if shutil.which("git") is not None:
            self._plant_git()

    def code(self, name: str) -> str:
        """A line of Python that leaves a mark."""
        return f"open({str(self._marks / name)!r}, 'w').close()\n"

    def ran(self) -> set[str]:
        """The names of those that have run, which are forgotten then."""
        files = list(self._marks.iterdir())
        for file in files:
            file.unlink()
        return {file.name for file in files}

    def git(self, *arguments: str) -> None:
        """Run git as people do: with everything that the repository configures."""
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(("git", *identity, *arguments), cwd=self.folder, check=True, capture_output=True)

    def _plant_git(self) -> None:
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-qm", "all")
        hook = self.folder / ".git" / "hooks" / "post-index-change"
        hook.parent.mkdir(exist_ok=True)
        for name in ("fsmonitor", "filter"):
            self.git("config", {"filter": "filter.x.clean"}.get(name, f"core.{name}"), self.program(name))
        hook.symlink_to(self.program("hook"))
        (self.folder / ".git" / "info" / "attributes").write_text("*.py filter=x\n")
        # Its time is another, so that git compares its text, through the filter.
        (self.folder / "vendor" / "lib" / "train.py").touch()

    def program(self, name: str) -> str:
        """A program, copying its input, that leaves a mark."""
        program = self._marks.with_name(f"{self._marks.name}-{name}")
        program.write_text(f"#!/bin/sh\ntouch '{self._marks}/{name}'\ncat\n")
        program.chmod(0o755)
        return str(program)
