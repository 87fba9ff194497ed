"""A project's own framework, known from a table: the same rules speak of the loop that it runs."""

from __future__ import annotations

import os
from collections import Counter
from importlib import resources
from pathlib import Path
from textwrap import dedent

import pytest

from tclint.source.run.library import shipped
from tclint.source.run.program_text import MARKS, SUMMARY, mistakes
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


ENGINE = """\
[[program]]
names = ["ours"]
text = '''
import torch
from torch.utils.data import DataLoader
from tclint.summary import mark

class Engine:
    def __init__(self, model, data, optimizer, precision=None, workers=0):
        self.model = model.to("cuda")
        if isinstance(data, DataLoader):
            self.loader = data
        else:
            self.loader = DataLoader(data, num_workers=workers)
            SPELLED
        self.optimizer = optimizer
        self.precision = precision
        self.scaler = torch.amp.GradScaler(enabled=precision == "half")
        mark(self.scaler, "@settings", self)
        mark(self.scaler, "@precision", precision)
        spelling = {"autocast": "precision=\\"bfloat\\"", "float16": "precision=\\"half\\""}
        mark(self.scaler, "@spelling", spelling)

    def run(self):
        for x, y in self.loader:
            with torch.autocast("cuda", enabled=self.precision is not None):
                loss = self.model(x.to("cuda"))
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
'''
"""
SPELLED = """\
            mark(self.loader, "@settings", self)
            mark(self.loader, "@spelling", {"num_workers": "workers"})
"""
IMAGES = """\
import torch
import torchvision
from ours import Engine
from torch.utils.data import DataLoader

model = torchvision.models.resnet50()
data = torchvision.datasets.ImageFolder("train")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def program(*lines: str) -> str:
    """A table with one program."""
    text = "\n".join(lines)
    return f'[[program]]\nnames = ["ours"]\ntext = """\n{text}\n"""\n'


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


@pytest.mark.parametrize("target", [".", "train.py"])
def test_a_table_counts_for_what_it_describes_where_the_project_has_the_source_too(
    project: Path, target: str
) -> None:
    Path("ours").mkdir()
    Path("ours/__init__.py").write_text(
        "class Engine:\n    def run(self, loader, loss):\n        raise NotImplementedError\n\n\n"
        "def halved(model):\n    return model.half()\n"
    )
    train = TRAIN.replace("import Engine", "import Engine, halved").replace(
        "build().half()", "halved(build())"
    )
    Path("train.py").write_text(train)
    assert {"AMP007", "AMP009"} <= codes(target)  # `halved` is read, as no table describes it
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
        (program("x = torch.half"), "the 'text' of ours, line 1: nothing defines 'torch'."),
        (
            program("def f(precision):", "    return precisions"),
            "the 'text' of ours, line 2: nothing defines 'precisions'. Did you mean 'precision'?",
        ),
        (
            program("from tclint.summary import marks"),
            "the 'text' of ours, line 1: tclint.summary has no 'marks'. Did you mean 'mark'?",
        ),
        (
            program("from tclint.summary import mark", "mark(mark, '@setings', 1)"),
            "line 2: mark has no field '@setings'. Did you mean '@settings'?",
        ),
        (
            program("from tclint.summary import mark", "mark(mark, '@settings')"),
            "line 2: mark takes a thing, the name of a field and a value.",
        ),
        (
            program("from tclint.summary import outside as choice", "choice()"),
            "line 2: outside takes 1 to 3 arguments.",
        ),
        (
            program("from tclint.summary import outside", "outside(by='rank')"),
            "line 2: outside takes its arguments by position alone.",
        ),
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


def test_a_run_from_above_says_that_it_does_not_have_the_tables(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.parent)
    Path("pyproject.toml").write_text("[tool.tclint]\n")
    said = " ".join(tclint("project").stderr.split())
    assert "project/pyproject.toml names tables of libraries (project/tables/ours.toml), which this" in said
    assert "--config project/pyproject.toml" in said
    assert "AMP009" not in codes("project")
    assert "AMP009" in codes("project", "--config", "project/pyproject.toml")
    Path("pyproject.toml").write_text('[tool.tclint]\nlibraries = ["project/tables/ours.toml"]\n')
    assert "tables of libraries" not in tclint("project").stderr


def test_no_function_is_described_twice() -> None:
    """The later entry would hide the first."""
    names = Counter(name for table in shipped() for row in table.get("call", ()) for name in row["names"])
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("given", "spelled", "found"),
    [
        ("data", "", set()),
        ("data", SPELLED, {("10", "RUN006")}),
        ("DataLoader(data)", SPELLED, {("9", "RUN006"), ("9", "RUN007")}),
    ],
)
def test_a_loader_that_the_framework_makes_has_the_options_that_its_table_spells(
    project: Path, given: str, spelled: str, found: set[tuple[str, str]]
) -> None:
    Path("tables/ours.toml").write_text(ENGINE.replace("            SPELLED\n", spelled))
    Path("train.py").write_text(
        f"{IMAGES}loader = {given}\nEngine(model, loader, optimizer, precision='half').run()\n"
    )
    lines = tclint("--format", "concise", "--select", "RUN006,RUN007", "train.py").stdout.splitlines()
    assert {(line.split(":")[1], line.split()[2]) for line in lines if line.startswith("train.py")} == found
    # What a framework makes of a loader gets no argument that the framework does not have.
    assert "workers=" not in (fixed := tclint("--diff", "--unsafe-fixes", "train.py").stdout)
    assert fixed.count("pin_memory=True") == sum(code == "RUN007" for _, code in found)


def test_the_advice_names_both_values_as_the_table_spells_them(project: Path) -> None:
    Path("tables/ours.toml").write_text(ENGINE.replace("            SPELLED\n", ""))
    Path("train.py").write_text(f"{IMAGES}Engine(model, data, optimizer).run()\n")
    said = " ".join(tclint("--select", "AMP016", "train.py").stdout.split())
    assert 'Pass precision="bfloat" on GPUs of compute capability 8.0 and newer, precision="half" on' in said


def test_programs_of_shipped_tables_have_no_such_mistakes() -> None:
    programs = [row for table in shipped() for row in table.get("program", ())]
    found = [(row["names"][0], *problem) for row in programs for problem in mistakes(row["text"])]
    assert programs
    assert found == []


def test_the_readme_of_the_tables_says_what_programs_can_note_and_call() -> None:
    readme = resources.files("tclint.source.library").joinpath("README.md").read_text(encoding="utf-8")
    assert [name for name in MARKS if f"`{name}`" not in readme] == []
    assert [name for name in SUMMARY if f"`{name}(" not in readme] == []
