"""The command on files whose names try to break out, in every format; one run is a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from in_process import tclint
from test_github import parse

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / "fixtures" / "train_fp16_no_scaler.py").read_bytes()

NAMES = (
    b"caf\xe9.py",
    b"a\n::error::owned.py",
    b"x,y:z%0A.py",
    b"<script>alert(1)<script>.py",
    b"\x1b[31mred.py",
    b"'quote\" back\\slash.py",
    b"=formula|.py",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    for file_name in NAMES:
        try:
            with open(os.path.join(os.fsencode(tmp_path), file_name), "wb") as file:
                file.write(SCRIPT)
        except OSError:
            pytest.skip(f"this file system has no file called {file_name!r}")
    return tmp_path


COMMAND = ("check", ".", "--isolated", "--select", "AMP001", "--format")


def run(folder: Path, name: str) -> str:
    done = tclint(*COMMAND, name, cwd=folder)
    assert done.returncode == 1, done.stderr
    return done.stdout


def test_github_annotates_every_file_and_nothing_else(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tclint", *COMMAND, "github"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr.decode()
    annotations, plain = parse(done.stdout.decode("utf-8"))
    assert {annotation.properties["file"].split(".py")[0] for annotation in annotations} == {
        "caf\\udce9", "a\\n::error::owned", "x,y:z%0A", "<script>alert(1)<script>", "\\x1b[31mred",
        "'quote\" back\\slash", "=formula|",
    }  # fmt: skip
    assert len([line for line in plain if line]) == 1


def test_sarif_addresses_the_very_files(folder: Path) -> None:
    log = json.loads(run(folder, "sarif"))
    found = {
        unquote_to_bytes(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        for result in log["runs"][0]["results"]
    }
    assert found == set(NAMES)
    hashes = {r["partialFingerprints"]["primaryLocationLineHash"] for r in log["runs"][0]["results"]}
    assert all(":" in value for value in hashes)


@pytest.mark.parametrize("name", ["text", "json", "jsonl", "markdown", "openmetrics", "html"])
def test_output_steers_no_terminal(name: str, folder: Path) -> None:
    text = run(folder, name)
    assert "\x1b" not in text
    assert not any("\ud800" <= character <= "\udfff" for character in text)
    assert not any(line.startswith("::") for line in text.splitlines())
