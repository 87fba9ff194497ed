"""Fixes kept between runs: they are planned anew only for another text or other findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.edits import registry
from tclint.engine.check import check
from tclint.engine.report import Report

TRAIN = """\
import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.cuda.amp.GradScaler()
for x in torch.utils.data.DataLoader(data):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
LOCAL = '''\
from tclint.plugin import SourceRule

class Backward(SourceRule):
    """A backward pass.

    What it does
    Finds backward passes.

    Why it costs
    It takes time.

    Example
        loss.backward()

    Use instead
        pass

    When it does not apply
    Always.
    """

    code, name, level, confidence, triggers = "OUR001", "our001", "warning", "high", ("backward",)
    sources = ("Handbook",)

    def check(self, context):
        for event in context.record.events:
            if event.name.endswith("backward"):
                yield self.finding(context.at(event), "A backward pass.", evidence={})

RULES = (Backward,)
'''


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose fixes are planned; the project is in the working directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    Path("pyproject.toml").write_text("")
    Path("train.py").write_text(TRAIN)
    found: list[str] = []
    plan = registry.with_fixes

    def with_fixes(path: str, text: str, findings: list[Finding]) -> list[Finding]:
        found.append(Path(path).name)
        return plan(path, text, findings)

    monkeypatch.setattr(registry, "with_fixes", with_fixes)
    return found


def edits(report: Report) -> list[str]:
    return [edit.replacement for it in report.findings if it.fix is not None for edit in it.fix.edits]


def test_fixes_of_an_unchanged_file_are_not_planned_again(planned: list[str]) -> None:
    first = check(".")
    assert edits(first)
    assert planned == ["train.py"]
    assert check(".").findings == first.findings
    assert planned == ["train.py"]


def test_a_changed_text_is_planned_anew_though_its_findings_stay(planned: list[str]) -> None:
    before = check(".")
    # A comment behind the last statement moves no finding.
    Path("train.py").write_text(TRAIN + "# done\n")
    assert check(".").findings == before.findings
    assert planned == ["train.py", "train.py"]


def test_other_findings_of_the_same_text_are_planned_anew(planned: list[str]) -> None:
    everything = check(".", Settings(select=("AMP013", "AMP014")))
    assert {finding.code for finding in everything.findings} == {"AMP013", "AMP014"}
    chosen = check(".", Settings(select=("AMP014",)))
    assert {finding.code for finding in chosen.findings} == {"AMP014"}
    assert edits(chosen) != edits(everything)
    assert planned == ["train.py", "train.py"]


def test_a_damaged_record_is_made_anew(planned: list[str], tmp_path: Path) -> None:
    first = check(".")
    records = [*(tmp_path / "cache/tclint/fixes").iterdir()]
    assert records
    for record in records:
        record.write_bytes(b"\x1f\x8b")
    assert check(".").findings == first.findings
    assert planned == ["train.py", "train.py"]


def test_nothing_is_kept_where_the_cache_is_off(planned: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        check(".", Settings(cache=False))
    assert planned == ["train.py", "train.py"]
    assert not (tmp_path / "cache").exists()


def test_findings_of_local_rules_are_completed_each_time(planned: list[str]) -> None:
    """Their code, and with it their fixes, may change while tclint's stays."""
    Path("rules.py").write_text(LOCAL)
    settings = Settings(rules=("rules.py",), select=("AMP013", "OUR001"))
    for _ in range(2):
        assert {finding.code for finding in check("train.py", settings).findings} == {"AMP013", "OUR001"}
    assert planned == ["train.py", "train.py"]
