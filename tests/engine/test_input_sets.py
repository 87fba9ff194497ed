"""Several sets of inputs, and arguments of the model's callable, from the command line and from the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.engine.check import check
from tclint.engine.report import Report

MODEL = """
import torch
from torch import nn

print("loading the file")

class Net(nn.Module):
    def __init__(self, width=1024, *, depth=1, name="x"):
        super().__init__()
        self.emb = nn.Embedding(5003, width)
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])
        self.head = nn.Linear(width, 5003)
        assert isinstance(name, str)

    def forward(self, ids):
        return self.head(self.layers(self.emb(ids)))
"""
SETS = """
EXAMPLE_INPUT_SETS = {
    "short": torch.zeros(8, 64, dtype=torch.int64),
    "long": {"ids": torch.zeros(4, 1024, dtype=torch.int64)},
    "wrong": {"tokens": torch.zeros(4, 8, dtype=torch.int64)},
}
"""
LIST = "EXAMPLE_INPUT_SETS = [torch.zeros(8, 64, dtype=torch.int64)]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sets")
    (path / "plain.py").write_text(MODEL)
    (path / "sets.py").write_text(MODEL + SETS)
    (path / "listed.py").write_text(MODEL + LIST)
    return path


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    targets = [f"{folder}/sets.py:Net", f"{folder}/listed.py:Net"]
    return check(targets, Settings(gpus=("a100",), min_gain_percent=0.0))


def test_every_set_is_an_entry(report: Report, folder: Path) -> None:
    assert [entry.target for entry in report.entries] == [
        f"{folder}/sets.py:Net [short]",
        f"{folder}/sets.py:Net [long]",
    ]
    assert [entry.inputs[0][2] for entry in report.entries] == [(8, 64), (4, 1024)]


def test_a_set_that_fails_does_not_end_the_others(report: Report, folder: Path) -> None:
    wrong, listed = report.errors
    assert wrong.target == f"{folder}/sets.py:Net [wrong]"
    assert "tokens" in wrong.message
    assert listed.target == f"{folder}/listed.py:Net"
    assert "a dict from their names to inputs" in listed.message


def test_the_least_ready_set_is_the_worst(report: Report) -> None:
    readiness = {
        entry.input_set: entry.metrics["a100-sxm4-80gb"].readiness_percent for entry in report.entries
    }
    (worst,) = [entry.input_set for entry in report.entries if entry.is_worst_case]
    assert readiness[worst] == min(readiness.values())


def test_a_finding_on_all_sets_is_listed_once(report: Report) -> None:
    vocabulary = [finding for finding in report.findings if finding.code == "DIM003"]
    assert len(vocabulary) == 1
    assert str(vocabulary[0].target).endswith(" [long]")  # where it costs more
    assert not [finding for finding in report.below_min_gain if finding.code == "DIM003"]


def test_where_the_time_went(report: Report) -> None:
    for entry in report.entries:
        assert set(entry.seconds) == {"torch", "import", "build", "trace", "read", "cost", "rules"}
        assert all(seconds >= 0 for seconds in entry.seconds.values())
        assert entry.captured_output == "loading the file\n"


def test_sets_and_arguments_of_the_command_line(folder: Path) -> None:
    settings = Settings(
        gpus=("a100",),
        input_sets=("int64[2,16]<5003", "ids=int64[2,32]"),
        arguments=("width=64", "depth=3", "name=abc"),
    )
    report = check([f"{folder}/plain.py:Net"], settings)
    assert not report.errors
    assert [entry.inputs for entry in report.entries] == [
        (("ids", "int64", (2, 16)),),
        (("ids", "int64", (2, 32)),),
    ]
    assert {entry.parameters for entry in report.entries} == {5003 * 64 * 2 + 5003 + 3 * (64 * 64 + 64)}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(arguments=("width",)), "NAME=VALUE"),
        (Settings(arguments=("width=1", "width=2")), "given twice"),
        (Settings(input_sets=("8,3;;4",)), "is not an input"),
        (Settings(inputs=("8,3",), input_sets=("8,3",)), "exclude each other"),
    ],
)
def test_usage(folder: Path, settings: Settings, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check([f"{folder}/plain.py:Net"], settings)
