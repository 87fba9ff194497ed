"""Levels follow prices, from the command line: what gains less than its uncertainty fails no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import tclint
from trained_net import AUTOCAST, MODEL, PLAIN, script

pytest.importorskip("torch")


def linted(
    folder: Path, *, batch: int, autocast: bool = True, optimizer: str = "AdamW"
) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by code."""
    (folder / "net.py").write_text(MODEL)
    text = script(batch=batch, forward=AUTOCAST if autocast else PLAIN, optimizer=optimizer)
    (folder / "train.py").write_text(text)
    options = ("--gpu", "a100", "--isolated", "--format", "json")
    result = tclint("net.py:build_model", "train.py", *options, cwd=folder)
    return result.returncode, {one["code"]: one for one in json.loads(result.stdout)["findings"]}


def test_a_price_makes_a_warning_of_what_a_script_alone_only_mentions(tmp_path: Path) -> None:
    code, found = linted(tmp_path, batch=1024)
    effect = found["RUN012"]["effect"]["a100-sxm4-80gb"]
    assert effect["gain_percent"] > 10.0
    assert (found["RUN012"]["level"], code) == ("warning", 1)


def test_a_gain_within_the_uncertainty_is_information(tmp_path: Path) -> None:
    code, found = linted(tmp_path, batch=513, optimizer="SGD")
    effect = found["RUN009"]["effect"]["a100-sxm4-80gb"]
    assert effect["gain_within_error"]
    assert (found["RUN009"]["level"], code) == ("info", 0)


def test_training_in_float32_is_the_first_warning_with_its_price(tmp_path: Path) -> None:
    code, found = linted(tmp_path, batch=4096, autocast=False)
    assert list(found)[:2] == ["AMP016", "PRC001"]
    assert found["AMP016"]["location"]["path"] == "train.py"
    assert found["AMP016"]["effect"]["a100-sxm4-80gb"]["gain_percent"] > 60.0
    assert (found["AMP016"]["level"], code) == ("warning", 1)
