"""What a shell offers for the next word of a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tclint.cli.main import cli


def offered(*words: str) -> list[str]:
    """Completions of the last word."""
    *before, incomplete = words
    found = ShellComplete(cli, {}, "tclint", "_TCLINT_COMPLETE").get_completions(before, incomplete)
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in found]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["expl"], ["explain", "explain-cost"]),
        (["train.p"], ["<file>"]),
        (["check", "tr"], ["<file>"]),
        (["train.py", "--mode", ""], ["train", "infer"]),
        (["--layout", "ch"], ["channels_last"]),
        (["explain", "dim00"], [f"DIM00{n}" for n in range(1, 7)]),
        (["--select", "AMP,DIM003"], ["AMP,DIM003"]),
        (["--gpu", "v100-sxm2-1"], ["v100-sxm2-16gb"]),
        (["--format", "js"], ["json", "jsonl"]),
        (["rules", "--format", "j"], ["json"]),
        (["--baseline", "b"], ["<file>"]),
        (["--batch", "3"], []),
    ],
)
def test_offers(words: list[str], expected: list[str]) -> None:
    assert offered(*words)[: len(expected)] == expected
    assert bool(expected) == bool(offered(*words))


def test_callables_of_a_file_are_offered_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        "import torch.nn as nn\nraise SystemExit\n"
        "def build_model() -> nn.Module: ...\ndef other(): return 3\n"
    )
    assert offered("model.py:") == ["model.py:build_model"]
    assert offered("model.py:x") == []
    assert offered("missing.py:") == ["<file>"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_takes_the_script(tmp_path: Path) -> None:
    wrapper = tmp_path / "tclint"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tclint "$@"\n')
    wrapper.chmod(0o755)
    script = (
        'eval "$(_TCLINT_COMPLETE=bash_source tclint)"; COMP_WORDS=(tclint gp); COMP_CWORD=1; '
        '_tclint_completion tclint; echo "${COMPREPLY[@]}"'
    )
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "gpus"
