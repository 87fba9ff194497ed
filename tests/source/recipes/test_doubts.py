"""Misspelt keys of configuration files and references to nothing are pointed out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.check import check
from tclint.engine.report import Report

LAUNCHER = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\n"
TREE = "trainer:\n  _target_: lightning.Trainer\n  precision: ${chosen.precision}\n  accelerator: gpu\n"


def doubts(report: Report) -> list[str]:
    return [item.reason for item in report.skipped if item.is_part]


def named(folder: Path, text: str) -> list[str]:
    path = folder / "config.yaml"
    path.write_text(text, "utf-8")
    return doubts(check(str(path), Settings(cache=False)))


def test_misspelt_keys(tmp_path: Path) -> None:
    assert named(tmp_path, LAUNCHER.replace("mixed_precision", "mixed_precison")) == [
        "line 3: tclint knows no key 'mixed_precison' of Accelerate configurations; did you mean "
        "'mixed_precision'?"
    ]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("", id="only known keys"),
        pytest.param("machine_rank: 0\nsame_network: true\n", id="keys that resemble nothing"),
        pytest.param("mixed_precison: fp16\n", id="a key that is there in the right spelling too"),
    ],
)
def test_keys_that_are_no_mistake(tmp_path: Path, more: str) -> None:
    assert named(tmp_path, LAUNCHER + more) == []


def test_references_to_nothing(tmp_path: Path) -> None:
    assert named(tmp_path, TREE) == [
        "line 3: ${chosen.precision} refers to a key that is not in this file, so its value is not known"
    ]
    assert named(tmp_path, TREE + "chosen:\n  precision: 16-mixed\n") == []
    assert named(tmp_path, TREE.replace("chosen.precision", "oc.env:PRECISION")) == []


def test_another_file_of_a_folder_may_define_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(TREE, "utf-8")
    assert doubts(check(str(tmp_path), Settings(cache=False))) == []
