"""Findings of programs kept between runs: unchanged programs are not run again, changed ones are."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.rule import CRASH_CODE
from tclint.engine.check import check
from tclint.engine.rules.registry import find_rule
from tclint.engine.sources import program
from tclint.engine.sources.silence import why
from tclint.source.context import SourceContext
from tclint.source.project import memory
from tclint.source.source_rule import SourceRule

TRAIN = """\
import torch
from steps import backward

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for x in torch.utils.data.DataLoader(data):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    backward(scaler, loss)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
SCALED = "def backward(scaler, loss):\n    scaler.scale(loss).backward()\n"
BYPASSED = "def backward(scaler, loss):\n    loss.backward()\n"

Codes = Callable[[], set[str]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are run."""
    found: list[str] = []
    made = program.SourceProgram.of.__func__  # type: ignore[attr-defined]

    def of(cls: type, root: str, *rest: object) -> object:
        found.append(Path(root).name)
        return made(cls, root, *rest)

    monkeypatch.setattr(program.SourceProgram, "of", classmethod(of))
    return found


@pytest.fixture
def codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Codes:
    """The codes that linting the folder gives."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    Path("pyproject.toml").write_text("")
    Path("train.py").write_text(TRAIN)
    Path("steps.py").write_text(SCALED)
    return lambda: {finding.code for finding in check(".").findings}


def test_an_unchanged_program_is_not_run_again(codes: Codes, runs: list[str]) -> None:
    Path("steps.py").write_text(BYPASSED)
    first = codes()
    assert first
    assert runs == ["train.py"]
    assert codes() == first
    assert runs == ["train.py"]


SCRIPT = """\
import torch
from trainers import trainer_of

model = torch.nn.Linear(8, 8).cuda()
scaler = torch.amp.GradScaler("cuda")
trainer_of("NAME")(model, torch.optim.AdamW(model.parameters()), scaler).fit(data)
"""
TRAINERS = """\
from trainers.coarse import Coarse
from trainers.fine import Fine

def trainer_of(name):
    return {"coarse": Coarse, "fine": Fine}[name]
"""
TRAINER = """\
import torch

class NAME:
    def __init__(self, model, optimizer, scaler):
        self.model, self.optimizer, self.scaler = model, optimizer, scaler

    def fit(self, data):
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.model(x.cuda()).mean()
            loss.backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
"""


@pytest.mark.usefixtures("codes")
def test_a_trainer_that_one_script_does_not_choose_is_run_by_the_script_that_does(runs: list[str]) -> None:
    Path("train.py").unlink()
    Path("steps.py").unlink()
    Path("trainers").mkdir()
    Path("trainers/__init__.py").write_text(TRAINERS)
    for name in ("coarse", "fine"):
        Path(f"train_{name}.py").write_text(SCRIPT.replace("NAME", name))
        Path(f"trainers/{name}.py").write_text(TRAINER.replace("NAME", name.title()))
    first, second = check("."), check(".")
    places = {finding.location.path for finding in first.findings if finding.code == "AMP013"}
    assert places == {"trainers/coarse.py", "trainers/fine.py"}
    assert first.findings == second.findings
    assert sorted(runs) == ["train_coarse.py", "train_fine.py"]
    assert {finding.code for finding in check("trainers/fine.py").findings} >= {"AMP013"}
    line = TRAINER[: TRAINER.index("loss.backward")].count("\n") + 1
    (rule,) = find_rule("AMP013")
    assert issubclass(rule, SourceRule)
    answer = why(rule(), "trainers/fine.py", line, Settings())
    assert answer.findings
    assert Path(answer.root).name == "train_fine.py"


def test_findings_are_the_same_from_the_cache(codes: Codes, runs: list[str]) -> None:
    Path("steps.py").write_text(BYPASSED)
    codes()
    first, second = check("."), check(".")
    assert len(runs) == 1
    assert first.findings == second.findings
    assert [finding.fix for finding in first.findings] == [finding.fix for finding in second.findings]


def test_an_imported_file_that_changes_runs_the_program(codes: Codes, runs: list[str]) -> None:
    before = codes()
    Path("steps.py").write_text(BYPASSED)
    assert codes() - before
    assert runs == ["train.py"] * 2


def test_a_file_that_takes_the_place_of_another_runs_the_program(codes: Codes, runs: list[str]) -> None:
    """`import steps` means the package once there is one."""
    Path("inner").mkdir()
    Path("inner/train.py").write_text(TRAIN)
    before = {finding.location.path: finding.code for finding in check("inner").findings}
    Path("inner/steps.py").write_text(BYPASSED)
    after = {finding.location.path: finding.code for finding in check("inner").findings}
    assert runs == ["train.py"] * 2
    assert after != before


def test_requirements_that_change_run_the_program(codes: Codes, runs: list[str]) -> None:
    """Where a rule asks for them."""
    old = TRAIN.replace('torch.amp.GradScaler("cuda")', "torch.cuda.amp.GradScaler()")
    Path("train.py").write_text(old)
    Path("requirements.txt").write_text("torch==1.12\n")
    before = codes()
    Path("requirements.txt").write_text("torch==2.5\n")
    assert codes() - before
    assert len(runs) == 2


def test_configuration_that_appears_runs_the_program(codes: Codes, runs: list[str]) -> None:
    """Where only the command line names one: it is one of those that hold what the program reads."""
    reads = "import sys, yaml\nconfig = yaml.safe_load(open(sys.argv[1]))\nprint(config['a'], config['b'])\n"
    Path("train.py").write_text(reads + TRAIN)
    codes()
    Path("small.yaml").write_text("a: 1\nb: 2\n")
    memory.forget()
    codes()
    assert len(runs) == 2
    Path("small.yaml").write_text("a: 1\nb: 3\n")
    codes()
    assert len(runs) == 3


def test_other_rules_run_the_program(codes: Codes, runs: list[str]) -> None:
    codes()
    check(".", Settings(select=("AMP",)))
    assert len(runs) == 2


@pytest.mark.usefixtures("codes")
def test_without_a_cache_every_program_is_run(runs: list[str]) -> None:
    for _ in range(2):
        check(".", Settings(cache=False))
    assert len(runs) == 2


def test_what_is_damaged_is_run(codes: Codes, runs: list[str], tmp_path: Path) -> None:
    before = codes()
    for damaged in (
        b"not a record",
        gzip.compress(b'{"files": {}, "imports": [], "asked": [], "outcomes": [["x", "found", {}]]}'),
    ):
        for record in (tmp_path / "cache/tclint/programs").iterdir():
            record.write_bytes(damaged)
        runs.clear()
        assert codes() == before
        assert runs == ["train.py"]


def test_files_that_cannot_be_read_are_kept_as_such(codes: Codes, runs: list[str]) -> None:
    Path("broken.py").write_text("import torch\nloss.backward(\n")
    first, second = check("."), check(".")
    assert [(finding.code, finding.location) for finding in first.findings] == [
        (finding.code, finding.location) for finding in second.findings
    ]
    assert runs.count("train.py") == 1


def test_a_rule_that_fails_is_asked_again(codes: Codes, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(SourceContext, "scaled_steps", property(lambda _: 1 / 0))
        assert CRASH_CODE in codes()
    assert CRASH_CODE not in codes()


def test_an_imported_file_that_begins_to_set_something_runs_the_program(
    codes: Codes, runs: list[str]
) -> None:
    Path("train.py").write_text(f"import idle\n{TRAIN}")
    Path("idle.py").write_text("LIMIT = 3\n")
    check("train.py")
    Path("idle.py").write_text("LIMIT = 4\n")
    check("train.py")
    assert runs == ["train.py"], "nothing is read of the file, and it does nothing"
    Path("idle.py").write_text("import torch\ntorch.autograd.set_detect_anomaly(True)\n")
    check("train.py")
    assert len(runs) == 2


def test_what_the_budget_leaves_out_is_said(codes: Codes, runs: list[str]) -> None:
    settings = Settings(program_events=12)
    said = [check(".", settings).skipped for _ in range(2)]
    assert runs == ["train.py"]
    assert said[0] == said[1]
    (part,) = said[0]
    assert (part.path, part.is_part) == ("train.py", True)
    assert "share 12 events ('program-events'), and none were left for backward" in part.reason
    assert not check(".").skipped
