"""Accepted findings: kept out of reports while they last, forgotten when they are gone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from sample_report import ENTRY

from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.core.finding import Finding, Location
from tclint.engine.baseline import Baseline, Known, scenario_of
from tclint.engine.report import Entry, Report

UNSCALED = """\
import torch

def {name}(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
SELECT = ("--select", "AMP003,AMP004", "--isolated")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "a.py").write_text(UNSCALED.format(name="a"))
    (tmp_path / "b.py").write_text(UNSCALED.format(name="b"))
    return tmp_path


def run(*arguments: str, select: tuple[str, ...] = SELECT) -> Result:
    return CliRunner().invoke(cli, [*arguments, *select], catch_exceptions=False)


def check(*arguments: str) -> Result:
    return run("check", "--baseline", "tclint-baseline.json", *arguments)


def accepted(folder: Path) -> dict[str, int]:
    data = json.loads((folder / "tclint-baseline.json").read_text())
    found: dict[str, int] = {}
    for item in data["findings"]:
        found[item["path"]] = found.get(item["path"], 0) + item["count"]
    return found


def test_what_is_accepted_is_not_reported(folder: Path) -> None:
    result = run("baseline", "write", ".")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("tclint-baseline.json: 2 accepted, 0 before\n")
    assert accepted(folder) == {"a.py": 1, "b.py": 1}
    result = check(".")
    assert result.exit_code == 0
    assert "No findings in 2 files; 2 accepted by the baseline." in result.stdout
    assert check("-v", ".").stdout.count("accepted by the baseline: ") == 2


def test_lines_may_move(folder: Path) -> None:
    run("baseline", "write", ".")
    before = (folder / "tclint-baseline.json").read_bytes()
    (folder / "a.py").write_text("# moved\n\n\n" + UNSCALED.format(name="a"))
    assert check(".").exit_code == 0
    run("baseline", "write", ".")
    assert (folder / "tclint-baseline.json").read_bytes() == before


def test_new_findings_are_reported(folder: Path) -> None:
    run("baseline", "write", ".")
    (folder / "a.py").write_text(UNSCALED.format(name="a") + "\n\n" + UNSCALED.format(name="c"))
    result = check(".")
    assert result.exit_code == 1
    assert "a.py:16:9: error AMP003" in result.stdout
    (last,) = result.stdout.split("\n\n")[-1:]
    counts = "1 finding (1 error) in 2 files; 1 fixable with --fix; 2 accepted by the baseline."
    assert " ".join(last.split()) == counts


def test_findings_that_look_alike_are_counted(folder: Path) -> None:
    # The same call, twice in one function.
    once = UNSCALED.format(name="a")
    clip = next(line for line in once.splitlines(keepends=True) if "clip" in line)
    twice = once.replace(clip, clip * 2)
    run("baseline", "write", ".")
    (folder / "a.py").write_text(twice)
    assert "a.py:7:9: error AMP003" in check("a.py").stdout
    run("baseline", "write", ".")
    assert accepted(folder)["a.py"] == 2
    assert check(".").exit_code == 0


def test_it_shrinks_when_told_to_and_never_grows(folder: Path) -> None:
    run("baseline", "write", ".")
    (folder / "a.py").write_text("import torch\n")
    result = check(".", "--update-baseline")
    assert result.exit_code == 0
    assert "tclint-baseline.json: 1 accepted finding is gone and forgotten\n" in result.stderr
    assert accepted(folder) == {"b.py": 1}
    (folder / "a.py").write_text(UNSCALED.format(name="a"))
    assert check(".", "--update-baseline").exit_code == 1
    assert accepted(folder) == {"b.py": 1}
    without = run("check", ".", "--update-baseline")
    assert (without.exit_code, "There is no baseline to update" in without.stderr) == (2, True)


def test_a_useless_comment_is_forgotten_once_it_is_gone(folder: Path) -> None:
    commented = UNSCALED.format(name="a").replace("update()", "update()  # tclint: ignore[AMP004]")
    (folder / "a.py").write_text(commented)
    run("baseline", "write", ".")
    assert accepted(folder) == {"a.py": 2, "b.py": 1}
    (folder / "a.py").write_text(UNSCALED.format(name="a"))
    assert "1 accepted finding is gone and forgotten\n" in check(".", "--update-baseline").stderr
    assert accepted(folder) == {"a.py": 1, "b.py": 1}


@pytest.mark.parametrize("flags", [(), ("--diff",), ("--diff", "--update-baseline"), ("--fix",)])
def test_linting_never_changes_it(folder: Path, flags: tuple[str, ...]) -> None:
    run("baseline", "write", ".")
    before = (folder / "tclint-baseline.json").read_bytes()
    (folder / "a.py").write_text("import torch\n")
    result = check(".", *flags)
    assert result.exit_code == 0
    assert "1 accepted finding is gone; --update-baseline forgets it\n" in result.stderr
    assert (folder / "tclint-baseline.json").read_bytes() == before


def test_what_a_run_does_not_look_at_stays(folder: Path) -> None:
    run("baseline", "write", ".")
    whole = (folder / "tclint-baseline.json").read_bytes()
    (folder / "a.py").write_text("import torch\n")
    check("b.py", "--update-baseline")
    assert (folder / "tclint-baseline.json").read_bytes() == whole
    other = ("--isolated", "--select", "AMP004")
    run("check", "--baseline", "tclint-baseline.json", "--update-baseline", ".", select=other)
    assert (folder / "tclint-baseline.json").read_bytes() == whole
    (folder / "a.py").write_text("def (\n    autocast GradScaler .scale( .step( clip_grad_norm_ .backward(")
    check(".", "--update-baseline")
    assert (folder / "tclint-baseline.json").read_bytes() == whole
    run("baseline", "write", "b.py")
    assert (folder / "tclint-baseline.json").read_bytes() == whole
    (folder / "a.py").unlink()
    check("b.py", "--update-baseline")
    assert accepted(folder) == {"b.py": 1}


CRASHING = """
from tclint.plugin import SourceRule

class Crashing(SourceRule):
    code, name, since, level, confidence, sources = "ZZZ001", "crashing", "1", "info", "high", ()
    triggers = ("torch",)
    valid = invalid = ()

    def check(self, context):
        raise RuntimeError("mistake")
        yield

RULES = (Crashing,)
"""


@pytest.mark.parametrize("failure", ["a target", "a rule"])
def test_a_run_that_failed_forgets_nothing(folder: Path, failure: str) -> None:
    run("baseline", "write", ".")
    before = (folder / "tclint-baseline.json").read_bytes()
    (folder / "a.py").write_text("import torch\n")
    if failure == "a target":
        result = check(".", "gone", "--update-baseline")
    else:
        (folder / "rules").mkdir()
        (folder / "rules" / "crashing.py").write_text(CRASHING)
        (folder / "pyproject.toml").write_text('[tool.tclint]\nrules = ["rules"]\n')
        arguments = ("--update-baseline", ".", "--select", "AMP003,ZZZ001")
        result = run("check", "--baseline", "tclint-baseline.json", *arguments, select=())
    assert result.exit_code == 2
    assert "accepted finding" not in result.stderr
    assert (folder / "tclint-baseline.json").read_bytes() == before


def test_it_is_read_from_where_it_lies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("baseline", "write", ".")
    (folder / "pyproject.toml").write_text('[tool.tclint]\nbaseline = "tclint-baseline.json"\n')
    inner = folder / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    result = CliRunner().invoke(cli, ["check", "--select", "AMP003", ".."])
    assert result.exit_code == 0, result.output
    assert "2 accepted" in result.stdout
    monkeypatch.chdir(folder)
    (folder / "inner" / "c.py").write_text(UNSCALED.format(name="c"))
    result = CliRunner().invoke(cli, ["baseline", "write", "--select", "AMP003", "inner"])
    assert result.exit_code == 0, result.output
    assert accepted(folder) == {"a.py": 1, "b.py": 1, "inner/c.py": 1}


def test_accepted_findings_are_not_fixed(folder: Path) -> None:
    run("baseline", "write", "a.py")
    result = run("fix", "--baseline", "tclint-baseline.json", ".")
    assert result.stderr == "fixed 1 finding in 1 file\n"
    assert (folder / "a.py").read_text() == UNSCALED.format(name="a")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "There is no baseline 'tclint-baseline.json'"),
        ("{", "is not JSON"),
        ("[]", "is not a baseline of version 1"),
        ('{"version": 2}', "is not a baseline of version 1"),
        ('{"version": 1, "findings": [{}], "scenarios": {}}', "lacks something"),
        ('{"version": 1, "findings": [], "scenarios": []}', "lacks something"),
        ('{"version": 1, "findings": 3, "scenarios": {}}', "lacks something"),
    ],
)
def test_what_is_no_baseline_is_an_error(folder: Path, text: str | None, says: str) -> None:
    if text is not None:
        (folder / "tclint-baseline.json").write_text(text)
    result = check(".")
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_baseline_that_cannot_be_read_is_an_error(folder: Path) -> None:
    (folder / "tclint-baseline.json").mkdir()
    result = check(".")
    assert result.exit_code == 2
    assert "Cannot read the baseline 'tclint-baseline.json': Is a directory." in result.stderr


def test_models_are_known_from_the_folder_of_the_baseline_unless_imported(folder: Path) -> None:
    baseline = Baseline(str(folder / "inner" / "tclint-baseline.json"))
    targets = [baseline.known(make("a.py", 1, target, "x")).target for target in ("a.py:f", "package.a:f")]
    assert targets == ["../a.py:f", "package.a:f"]


MODEL = """\
import torch
from torch import nn

def build(width=1001): return nn.Linear(1024, width), torch.zeros(4096, 1024)

def other(): return build(1003)
"""


def test_declared_models_are_accepted_under_their_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.tclint]\ngpu = ["a100"]\nselect = ["DIM001"]\nfail-on = "info"\n'
        'baseline = "tclint-baseline.json"\n'
        'models = ["model.py:build", {target = "model.py:other", gpu = ["v100"], mode = "infer"}]\n'
    )
    assert run("baseline", "write", "--models", select=()).exit_code == 0
    assert accepted(tmp_path) == {"model.py": 2}
    scenarios = json.loads((tmp_path / "tclint-baseline.json").read_text())["scenarios"]
    assert {target: (one["gpus"], one["mode"]) for target, one in scenarios.items()} == {
        "model.py:build": (["a100-sxm4-80gb"], "train"),
        "model.py:other": (["v100-sxm2-16gb"], "infer"),
    }
    result = run("check", "--models", select=())
    assert (result.exit_code, result.stderr) == (0, "")
    # By hand the model runs under other settings: its accepted findings are no business of that run.
    by_hand = ("check", "model.py:other", "--min-gain", "100", "--update-baseline")
    assert run(*by_hand, select=()).exit_code == 0
    assert accepted(tmp_path) == {"model.py": 2}
    (tmp_path / "model.py").write_text(MODEL.replace("1003", "1024"))
    assert (
        "1 accepted finding is gone and forgotten"
        in run("check", "--models", "--update-baseline", select=()).stderr
    )
    assert accepted(tmp_path) == {"model.py": 1}
    assert run("baseline", "write", "--models", "model.py", select=()).exit_code == 2


@pytest.mark.parametrize(("accumulation", "left"), [(1, 0), (4, 1)])
def test_a_setting_newer_than_the_file_was_at_its_default(accumulation: int, left: int) -> None:
    settings = Settings(accumulation=accumulation)
    report = Report(settings=settings, entries=(replace(ENTRY, target="m.py:f", settings=None),), findings=())
    older = {name: value for name, value in scenario_of(settings).items() if name != "accumulation"}
    known = Known("m.py", "DIM003", "vocab-misaligned", "1234", "m.py:f")
    baseline = Baseline("tclint-baseline.json", {known: 1}, {"m.py:f": older})
    assert baseline.shrunk(report).total == left


def make(path: str, line: int, target: str | None, identity: str) -> Finding:
    return Finding(
        "DIM001",
        "linear-misaligned",
        "info",
        "high",
        "m",
        Location(path, line),
        target=target,
        identity=identity,
    )


def test_writing_replaces_what_a_model_had_under_other_settings(folder: Path) -> None:
    entry = Entry("a.py:f", "Net", "train", "fp16", 0, 0, 0, {}, (), (), {})
    accepted = make("a.py", 3, "a.py:f", "x")
    baseline = Baseline("b.json").renewed(Report(Settings(), entries=(entry,), findings=(accepted,)))
    assert baseline.total == 1
    scenario = json.loads(baseline.to_json())["scenarios"]["a.py:f"]
    assert list(scenario) == sorted(scenario), "in one order, so that branches merge"
    elsewhere = Report(Settings(batch=64), entries=(entry,))
    assert baseline.shrunk(elsewhere).counts == baseline.counts
    assert baseline.renewed(elsewhere).total == 0
    assert baseline.shrunk(Report(Settings(), entries=(entry,))).total == 0


FINDINGS = st.lists(
    st.builds(
        make,
        st.sampled_from(["a.py", "b.py"]),
        st.integers(1, 9),
        st.sampled_from([None, "a.py:f"]),
        st.sampled_from("xyz"),
    ),
    max_size=8,
)


@given(FINDINGS, FINDINGS)
def test_every_finding_is_new_or_known(old: list[Finding], now: list[Finding]) -> None:
    baseline = Baseline("b.json")
    counts: dict[object, int] = {}
    for finding in old:
        known = baseline.known(finding)
        counts[known] = counts.get(known, 0) + 1
    baseline = Baseline("b.json", counts)  # type: ignore[arg-type]
    new, accepted = baseline.split(now)
    assert sorted(map(id, (*new, *accepted))) == sorted(map(id, now))
    for key in {baseline.known(finding) for finding in now}:
        there = sum(baseline.known(finding) == key for finding in now)
        known = sum(baseline.known(finding) == key for finding in accepted)
        assert known == min(there, counts.get(key, 0))


NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.narrow = nn.Sequential(nn.Linear(1024, 131), nn.Linear(131, 1024))
        self.wide = nn.Sequential(nn.Linear(1024, wide), nn.Linear(wide, 1024))

    def forward(self, x):
        return self.wide(self.narrow(x))


def build():
    return Net({wide})


def example_inputs():
    return torch.zeros(4096, 1024)
"""


def test_what_gains_too_little_after_another_change_stays_accepted(folder: Path) -> None:
    pytest.importorskip("torch")
    model = ("net.py:build", "--gpu", "a100")
    (folder / "net.py").write_text(NET.format(wide=1019))
    run("baseline", "write", *model, select=("--isolated",))
    file = folder / "tclint-baseline.json"
    assert len(json.loads(file.read_text())["findings"]) == 2

    (folder / "net.py").write_text(NET.format(wide=65536))
    result = run("check", *model, "--baseline", str(file), "--update-baseline", select=("--isolated",))
    assert "1 accepted finding is gone and forgotten\n" in result.stderr
    assert "linear-misaligned" not in result.stdout
    (folder / "net.py").write_text(NET.format(wide=1024))
    result = run("check", *model, "--baseline", str(file), select=("--isolated",))
    assert result.exit_code == 0
    assert "1 accepted by the baseline" in result.stdout
