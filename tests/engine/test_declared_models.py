"""`models` in the configuration, `--models`, and the cache of traced graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tclint
from tclint.config.pyproject import load_config
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.engine import caches
from tclint.engine.caches import TraceCache
from tclint.engine.declared_models import check_declared, check_targets, with_nested
from tclint.engine.report import Interrupted, Report

MODEL = """\
import pathlib
import torch
from torch import nn
from widths import WIDTH

DEPTH = int((pathlib.Path(__file__).parent / "depth.txt").read_text())

def build(): return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]), torch.zeros(8, WIDTH)

def other(width=64): return nn.Linear(64, width)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "widths.py").write_text("WIDTH = 64\n")
    (tmp_path / "depth.txt").write_text("2\n")
    (tmp_path / "alone.py").write_text("from torch import nn\ndef build(): return nn.Linear(64, 64)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _declare(project: Path, models: str, more: str = "") -> Path:
    file = project / "pyproject.toml"
    file.write_text(f'[tool.tclint]\ngpu = ["a100"]\n{more}models = {models}\n')
    return file


def _check(project: Path, flags: dict[str, object] | None = None) -> tuple[Report, list[str]]:
    said: list[str] = []
    settings = load_config(project / "pyproject.toml")
    report = check_declared(settings, flags=flags or {}, cache=TraceCache(str(project), said.append))
    assert report.errors == ()
    return report, said


def test_entries_have_their_own_settings_in_one_report(project: Path) -> None:
    _declare(
        project,
        '[{target = "model.py:other", input = ["4,64"], gpu = ["h100"], precision = "bf16", mode = "infer",'
        ' arg = ["width=77"]}, "model.py:build", {target = "alone.py:build", batch = 16, input = "8,64"}]',
    )
    report, _ = _check(project)
    other, build, alone = report.entries
    assert [other.target, build.target, alone.target] == [
        "model.py:other",
        "model.py:build",
        "alone.py:build",
    ]
    assert (list(other.metrics), other.precision, other.mode) == (["h100-sxm5-80gb"], "bf16", "infer")
    assert other.parameters == 64 * 77 + 77
    assert (list(build.metrics), build.precision, build.mode) == (["a100-sxm4-80gb"], "fp16", "train")
    assert alone.inputs[0][2] == (16, 64)
    assert any("77" in finding.message for finding in report.findings + report.below_min_gain)
    json.loads(tclint.render(report))


def test_files_are_relative_to_the_configuration(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(project, '["model.py:build"]')
    (project / "deep").mkdir()
    monkeypatch.chdir(project / "deep")
    report, _ = _check(project)
    assert [entry.target for entry in report.entries] == ["../model.py:build"]


def test_only_models_whose_files_changed_are_traced_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _declare(project, '["model.py:build", {target = "alone.py:build", input = "8,64"}]')
    first, said = _check(project)
    assert said == [
        "cache: model.py:build is traced: it was not traced yet",
        "cache: alone.py:build is traced: it was not traced yet",
    ]
    traced: list[str] = []
    trace = caches.trace_targets

    def spy(targets, settings, own=None, on_progress=None):  # type: ignore[no-untyped-def]
        traced.extend(targets)
        return trace(targets, settings, own=own, on_progress=on_progress)

    monkeypatch.setattr(caches, "trace_targets", spy)
    again, said = _check(project)
    assert said == ["cache: model.py:build is unchanged", "cache: alone.py:build is unchanged"]
    assert traced == []
    assert again.findings == first.findings
    assert [entry.metrics for entry in again.entries] == [entry.metrics for entry in first.entries]

    (project / "widths.py").write_text("WIDTH = 65\n")
    changed, said = _check(project)
    assert said == [
        "cache: model.py:build is traced: widths.py changed",
        "cache: alone.py:build is unchanged",
    ]
    assert traced == ["model.py:build"]
    assert changed.entries[0].parameters == 2 * (65 * 65 + 65)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda p: (p / "depth.txt").write_text("3\n"), "depth.txt changed"),
        (lambda p: (p / "model.py").write_text(MODEL + "\n"), "model.py changed"),
        (lambda p: _declare(p, '[{target = "model.py:build", batch = 4}]'), "with these settings"),
        (lambda p: [f.write_bytes(b"\x1f\x8bno") for f in _records(p)], "damaged"),
        (lambda p: [f.write_bytes(f.read_bytes()[:-40]) for f in _records(p)], "damaged"),
        (lambda p: [f.write_bytes(b"") for f in _records(p)], "damaged"),
    ],
)
def test_why_a_model_is_traced_again(  # type: ignore[no-untyped-def]
    project: Path, monkeypatch: pytest.MonkeyPatch, spoil, reason: str
) -> None:
    _declare(project, '["model.py:build"]')
    _check(project)
    spoil(project)
    (said,) = _looked_up(project, monkeypatch)
    assert "is traced" in said
    assert reason in said


def test_a_damaged_record_is_replaced(project: Path) -> None:
    _declare(project, '["model.py:build"]')
    _check(project)
    (record,) = _records(project)
    record.write_bytes(b"")
    _check(project)
    assert _check(project)[1] == ["cache: model.py:build is unchanged"]


def test_another_tool_or_torch_is_a_reason(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(project, '["model.py:build"]')
    _check(project)
    real = caches.environment()
    for name, reason in (("tclint", "new tclint"), ("torch", "another torch"), ("packages", "packages")):
        monkeypatch.setattr(caches, "environment", lambda name=name: {**real, name: "other"})
        (said,) = _looked_up(project, monkeypatch)
        assert reason in said


def _looked_up(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a run says about its models, without tracing any."""
    monkeypatch.setattr(caches, "trace_targets", lambda *_, **__: iter(()))
    said: list[str] = []
    settings = load_config(project / "pyproject.toml")
    check_declared(settings, cache=TraceCache(str(project), said.append))
    return said


def test_rules_and_prices_are_never_cached(project: Path) -> None:
    _declare(project, '["model.py:build"]')
    _check(project)
    _declare(project, '["model.py:build"]', 'precision = "fp32"\ncompiled = true\n')
    report, said = _check(project)
    assert said == ["cache: model.py:build is unchanged"]
    settings = report.entries[0].settings
    assert settings is not None
    assert (report.entries[0].precision, settings.compiled) == ("fp32", True)


def test_a_model_that_failed_is_tried_again(project: Path) -> None:
    (project / "alone.py").write_text("def build(): raise ValueError('no')\n")
    _declare(project, '["alone.py:build"]')
    settings = load_config(project / "pyproject.toml")
    for _ in range(2):
        report = check_declared(settings, cache=TraceCache(str(project)))
        assert len(report.errors) == 1
        assert report.exit_code == 2
    assert _records(project) == []


def _records(project: Path) -> list[Path]:
    return list((project / caches.FOLDER).glob("*.json.gz"))


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ('"model.py:build"', "expects an array"),
        ('["model.py"]', "expects a model such as"),
        ('[{input = ["8,3"]}]', "with a 'target'"),
        ('[{target = "model.py:build", inputs = "8,3"}]', "Did you mean 'input'"),
        ('[{target = "model.py:build", batch = "many"}]', "'batch' expects a whole number above 0"),
    ],
)
def test_wrong_entries_name_the_line(project: Path, models: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(_declare(project, models))
    assert "pyproject.toml:3:" in str(caught.value)
    assert message in str(caught.value)


def test_one_model_under_two_settings_is_refused(project: Path) -> None:
    _declare(project, '["model.py:build", {target = "model.py:build", batch = 4}]')
    with pytest.raises(UsageError, match="twice"):
        _check(project)


def test_an_interrupt_keeps_what_nested_projects_came_to(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what the project that was interrupted had finished."""
    inner = project / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[tool.tclint]\ngpu = ["h100"]\n')
    (inner / "alone.py").write_text((project / "alone.py").read_text())
    targets = ["alone.py", "inner/alone.py"]
    settings = with_nested(Settings(), None, targets, {})
    made: list[Report] = []

    def check(group: list[str], own: Settings, *_: object, **__: object) -> Report:
        made.append(Report(settings=own, source_files=1, paths=tuple(group)))
        if len(made) == 2:
            raise Interrupted(made[-1])
        return made[-1]

    monkeypatch.setattr("tclint.engine.check.check", check)
    with pytest.raises(Interrupted) as caught:
        check_targets(targets, settings)
    assert caught.value.report.paths == ("alone.py", "inner/alone.py")
    assert caught.value.report.source_files == 2
