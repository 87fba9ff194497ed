"""The largest published models within seconds and megabytes: weights take no memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "big_models.py"

# Limits on time are in benchmarks/big_models.py: a test must not fail because the machine is busy.
MAX_MIB = 600


def measured(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--one", name], capture_output=True, text=True, check=True
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


@pytest.mark.skipif(os.name == "nt", reason="peak memory is read from the resource module")
@pytest.mark.parametrize(("name", "parameters"), [("gpt3_175b", 174.6e9)])
def test_a_large_model_is_traced_in_little_memory(name: str, parameters: float) -> None:
    row = measured(name)
    assert row["parameters"] == pytest.approx(parameters, rel=0.001)
    assert row["peak_mib"] < MAX_MIB
    assert row["forward_flops"] > 0
