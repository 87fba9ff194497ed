"""Scripts that train when they are imported: their models are found, and nothing is trained or written."""

from __future__ import annotations

from pathlib import Path

import pytest

import tclint
from tclint.config.settings import Settings
from tclint.engine.report import Report
from tclint.tracing import trace_targets

_SCRIPT = """
import json, logging, os
import torch
from torch import nn

os.makedirs("runs/first", exist_ok=True)
with open("runs/first/config.json", "w") as file:
    json.dump({"width": 48}, file)
with open("notes.txt", "a") as file:
    file.write("started")
logging.basicConfig(filename="train.log", force=True)

class Net(nn.Sequential):
    def __init__(self, width=json.load(open("runs/first/config.json"))["width"]):
        super().__init__(nn.Linear(32, width), nn.Linear(width, 10))

model = Net()
torch.save(model.state_dict(), "first.pt")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    loss = model(torch.randn(8, 32)).sum()
    loss.backward()
    optimizer.step()

def build():
    return model
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(_SCRIPT)
    (tmp_path / "notes.txt").write_text("mine\n")
    return tmp_path


def _report(target: str) -> Report:
    return tclint.check(target, settings=Settings(cache=False))


@pytest.mark.parametrize("name", ["Net", "model"])
def test_what_stands_above_the_training_is_traced_and_nothing_is_left(folder: Path, name: str) -> None:
    report = _report(f"train.py:{name}")
    assert report.errors == ()
    (entry,) = report.entries
    assert entry.parameters == 32 * 48 + 48 + 48 * 10 + 10
    said = [assumption.what for assumption in entry.assumptions]
    assert (
        "train.py was run up to RuntimeError: the file trains when it is imported (train.py:22), and nothing "
        "below"
    ) in said
    assert "not written: runs, notes.txt and train.log, which the code writes before its forward runs" in said
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "train.py"]
    assert (folder / "notes.txt").read_text() == "mine\n"


def test_models_that_are_traced_beside_each_other_make_the_same_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    imports = "import os, time\nfrom torch import nn\n"
    (tmp_path / "a.py").write_text(f"{imports}os.makedirs('first')\nnet = nn.Linear(8, 8)\n")
    (tmp_path / "b.py").write_text(
        f"{imports}while not os.path.isdir('first'):\n    time.sleep(0.01)\n"
        "time.sleep(1)\nos.mkdir('first/again')\nnet = nn.Linear(8, 8)\n"
    )
    results = list(trace_targets(["a.py:net", "b.py:net"], Settings(inputs=("4,8",), jobs=2)))
    assert [result.error for result in results] == [None, None]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py"]


@pytest.mark.usefixtures("folder")
def test_what_stands_below_is_not_there() -> None:
    (error,) = _report("train.py:build").errors
    assert (
        "train.py could not be imported: RuntimeError: the file trains when it is imported" in error.message
    )


def test_a_script_that_wants_arguments_says_what_to_do(folder: Path) -> None:
    (folder / "main.py").write_text(
        "import argparse\nargparse.ArgumentParser().parse_args(['--no'])\nclass Net: pass\n"
    )
    (error,) = _report("main.py:Net").errors
    assert (
        "main.py called sys.exit(2) while it was imported (main.py:2); name a file that only" in error.message
    )
