"""Codes of rules that are gone stay valid where users wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import tclint

from tclint.engine.rules.registry import all_rules
from tclint.engine.rules.retired import retired_rules

LOOP = (
    "import torch\n\nscaler = torch.amp.GradScaler('cuda')\n"
    "for x, y in loader:\n    with torch.autocast('cuda'):\n        loss = model(x, y)\n"
    "    scaler.scale(loss).backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    "    scaler.step(optimizer)\n    scaler.update()\n"
)
RUN = ("train.py", "--format", "json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "pyproject.toml").write_text("[tool.tclint]\n")
    return tmp_path


def test_no_rule_has_a_retired_code_or_name() -> None:
    gone = {text for rule in retired_rules() for text in (rule.code, rule.name)}
    assert len(gone) == 2 * len(retired_rules()) >= 16
    assert not gone & {text for rule in all_rules() for text in (rule.code, rule.name)}


def test_they_select_nothing_and_one_sentence_says_so(folder: Path) -> None:
    alone = tclint(*RUN, "--select", "AMP003", cwd=folder)
    (folder / "pyproject.toml").write_text(
        '[tool.tclint]\nselect = ["AMP003", "PRC003"]\nignore = ["prefer-wide"]\n'
    )
    beside = tclint(*RUN, cwd=folder)
    assert (beside.returncode, json.loads(beside.stdout)["findings"]) == (
        alone.returncode, json.loads(alone.stdout)["findings"])  # fmt: skip
    assert [line.split(" is retired: ")[0] for line in beside.stderr.splitlines()] == [
        "note: ARC011 (prefer-wide)", "note: PRC003 (tf32-legacy-api)"]  # fmt: skip
    assert json.loads(tclint(*RUN, "--isolated", "--select", "PRC003", cwd=folder).stdout)["findings"] == []


def test_comments_and_baselines_that_name_them_are_right(folder: Path) -> None:
    (folder / "train.py").write_text(LOOP.replace("cuda')\n", "cuda')  # tclint: ignore[ARC011] wide\n", 1))
    found = json.loads(tclint(*RUN, "--select", "ALL", cwd=folder).stdout)["findings"]
    assert "AMP003" in {finding["code"] for finding in found}
    assert not {finding["code"] for finding in found} & {"TCL002", "TCL004"}
    assert tclint("baseline", "write", "train.py", cwd=folder).returncode == 0
    file = folder / "tclint-baseline.json"
    file.write_text(
        file.read_text().replace("AMP003", "ARC011").replace("clip-before-unscale", "prefer-wide")
    )
    result = tclint(*RUN, "--baseline", file.name, cwd=folder)
    assert "AMP003" in {finding["code"] for finding in json.loads(result.stdout)["findings"]}
    assert result.returncode == 1


def test_explaining_one_says_why_it_is_gone() -> None:
    result = tclint("explain", "sparse-24-shape", "--isolated")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ARC015 (sparse-24-shape) is retired: ")
