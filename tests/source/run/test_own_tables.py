"""A project's own framework, known from a table: the same rules speak of the loop that it runs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from tclint.source.run.library import shipped
from tests.support.in_process import tclint

TABLE = """\
# Our engine: a loss scaler, and one GPU.
[[program]]
names = ["ours", "ours.engine"]
text = '''
import torch

class Engine:
    def __init__(self, model, optimizer):
        self.model = model.to("cuda")
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler()

    def run(self, loader, loss):
        for batch in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                value = loss(self.model, batch)
            self.scaler.scale(value).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
'''

[[call]]
names = ["ours.data.loader"]
parameters = ["dataset"]
returns = "loader of dataset"
"""
TRAIN = """\
from ours import Engine
from ours.data import loader
from parts import build, optimizer_of, F


def objective(model, batch):
    probabilities = model(batch["x"]).sigmoid()
    return F.binary_cross_entropy(probabilities, batch["y"])


def main(args):
    net = build().half()
    Engine(net, optimizer_of(net)).run(loader(args.data), objective)
"""
PARTS = """\
import torch
import torch.nn.functional as F


def build():
    return torch.nn.Sequential(torch.nn.Linear(768, 768), torch.nn.GELU(), torch.nn.Linear(768, 1))


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3)
"""
SETTINGS = '[tool.tclint]\nlibraries = ["tables/ours.toml"]\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "tables").mkdir(parents=True)
    files = {"pyproject.toml": SETTINGS, "tables/ours.toml": TABLE, "train.py": TRAIN, "parts.py": PARTS}
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def codes(*targets: str) -> set[str]:
    lines = tclint("--format", "github", *targets).stdout.splitlines()
    return {line.partition("title=")[2].partition(" ")[0] for line in lines if "title=" in line}


@pytest.mark.parametrize("target", [".", "train.py"])
def test_rules_see_the_loop_that_a_table_describes(project: Path, target: str) -> None:
    assert {"AMP007", "AMP009"} <= codes(target)
    Path("pyproject.toml").write_text("[tool.tclint]\n")
    assert not {"AMP007", "AMP009"} & codes(target)


def test_findings_stand_where_the_file_calls_the_library(project: Path) -> None:
    shown = tclint("train.py").stdout
    assert "train.py:8:12: error AMP007" in shown
    assert "train.py:12:11: error AMP009" in shown


def test_a_table_that_changes_is_read_again(project: Path) -> None:
    assert "AMP009" in codes(".")
    table = Path("tables/ours.toml")
    table.write_text(TABLE.replace("torch.amp.GradScaler()", "torch.amp.GradScaler(enabled=False)"))
    os.utime(table, ns=(0, 1))
    assert "AMP009" not in codes(".")


def test_files_that_use_no_library_of_a_table_are_filtered_as_before(project: Path) -> None:
    Path("tables/ours.toml").write_text(
        '[[call]]\nnames = ["torch.ours"]\n\n[alias]\n"ours.half" = "torch.float16"\n'
    )
    Path("other.py").write_text("import torch\n" + "x = torch.ones(8)\n" * 3)
    assert "other.py" not in tclint("-v", ".").stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[call]\n", "is not TOML"),
        ('[[calls]]\nnames = ["ours.f"]\n', "there is no table 'calls'; known are call, "),
        (
            '[[call]]\nnames = ["ours.f"]\nreturn = "module"\n',
            "has no field 'return'. Did you mean 'returns'?",
        ),
        ('[[call]]\nreturns = "module"\n', "an entry of [[call]] lacks 'names'."),
        ('[[call]]\nnames = "ours.f"\n', "'names' of [[call]] is a list of names, not 'ours.f'."),
        ("[[call]]\nnames = []\n", "an entry of [[call]] names nothing."),
        ('[[method]]\nnames = ["f"]\n', "an entry of [[method]] lacks 'of'."),
        ('call = "f"\n', "each entry of 'call' begins with [[call]]."),
        ('alias = "f"\n', "[alias] is a table."),
        ('[[program]]\nnames = ["ours"]\ntext = "class:"\n', "the 'text' of ours is not Python: "),
        ('[[program]]\nnames = ["ours"]\ntext = 3\n', "the 'text' of ours is Python, as one string."),
    ],
)
def test_a_wrong_table_is_one_sentence(project: Path, text: str, problem: str) -> None:
    Path("tables/ours.toml").write_text(dedent(text))
    done = tclint("train.py")
    assert done.returncode == 2
    said = " ".join(done.stdout.split())
    assert f"tables{os.sep}ours.toml" in said
    assert problem in said


def test_a_table_that_is_missing_is_one_sentence(project: Path) -> None:
    Path("tables/ours.toml").unlink()
    done = tclint("train.py")
    assert done.returncode == 2
    said = " ".join(done.stdout.split())
    assert f"tables{os.sep}ours.toml, which 'libraries' names, cannot be read" in said


def test_no_function_is_described_twice() -> None:
    """The later entry would hide the first."""
    names = Counter(name for table in shipped() for row in table.get("call", ()) for name in row["names"])
    assert [name for name, count in names.items() if count > 1] == []
