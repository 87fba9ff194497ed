"""Commands that download are refused at once; others run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tclint.config.settings import Settings
from tclint.tracing import trace_targets
from tclint.tracing.worker.isolation import downloader


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["curl", "--retry", "20", "-o", "w.pth", "https://x.y/w.pth"], "curl"),
        ([Path("/usr/bin/wget"), b"https://x.y"], "wget"),
        ("mkdir -p w && cd w; wget https://x.y/w.pth", "wget"),
        ("HTTPS_PROXY=p sudo curl -L 'https://x.y'", "curl"),
        (["bash", "-c", "set -e; curl https://x.y"], "curl"),
        ("git clone https://github.com/a/b", "git"),
        (["git", "-C", "b", "pull"], "git"),
        ([sys.executable, "-m", "pip", "install", "b"], "pip"),
        ("pip install b's", "pip"),
        ("echo curl", None),
        ("git rev-parse HEAD", None),
        (["python", "-m", "pip", "list"], None),
        (["nvcc", "--version"], None),
        ("ls curl | grep wget", None),
        (["bash", "-c"], None),
        ("", None),
        ([], None),
    ],
)
def test_what_downloads(command: Any, program: str | None) -> None:
    assert downloader(command) == program


BUILDERS = """
import os, subprocess
from torch import nn

def net():
    return nn.Linear(8, 8)

def curl():
    subprocess.run(["curl", "--retry", "99", "--retry-all-errors", "https://x.invalid/w.pth"], check=True)
    return net()

def caught():
    try:
        subprocess.check_output("git clone https://x.invalid/a", shell=True)
    except OSError:
        return net()

def line():
    return net() if os.system("wget https://x.invalid/w.pth") else None

def harmless():
    assert subprocess.check_output(["echo", "yes"]) == b"yes\\n"
    return net() if os.system("true") == 0 else None
"""


def test_builders_that_run_commands(tmp_path: Path) -> None:
    path = tmp_path / "runs.py"
    path.write_text(BUILDERS)
    settings = Settings(inputs=("4,8",))
    curl, *others = trace_targets(
        [f"{path}:{name}" for name in ("curl", "caught", "line", "harmless")], settings
    )
    assert "`curl` was not run, because it downloads" in str(curl.error)
    assert str(curl.error).count("network") == 2  # "without the network unless --network is given"
    assert [other.error for other in others] == [None] * 3
