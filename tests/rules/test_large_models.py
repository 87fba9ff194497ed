"""A model of 175 billion parameters is linted in little memory."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from examples import FIXTURES

pytest.importorskip("torch")

LARGEST_MIB = 800


# A process of its own starts the command: a child inherits the peak memory of what forked it, and the tests'
# own process is large.
MEASURE = """
import json, resource, subprocess, sys
with open(sys.argv[1], "w") as file:
    subprocess.run(sys.argv[2:], stdout=file)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"peak_kib": usage.ru_maxrss}))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("resource") is None, reason="needs the children's resource usage"
)
def test_gpt3_is_linted_in_little_memory(tmp_path: Path) -> None:
    target = f"{FIXTURES / 'gpt3_175b.py'}:build_model"
    output = tmp_path / "report.json"
    command = [sys.executable, "-m", "tclint", target, "--gpu", "a100", "--min-gain", "0.1"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(output), *command, "--isolated", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    usage = json.loads(done.stdout)
    report = json.loads(output.read_text())
    [entry] = report["entries"]
    assert entry["parameters"] == 174_604_259_328
    # The vocabulary is told, though so large a model loses little by it.
    (vocabulary,) = [finding for finding in report["findings"] if finding["code"] == "DIM003"]
    assert vocabulary["evidence"]["padding"] == [[50257, 50304]]
    [metrics] = entry["metrics"].values()
    assert metrics["step_time_fixed_us"] < metrics["step_time_us"]
    assert usage["peak_kib"] / 1024 < LARGEST_MIB  # of the largest process; KiB on Linux
