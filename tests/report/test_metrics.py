"""The metric rows and the record form of the JSON report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import hostile_report, hostile_text
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from sample_report import ENTRY, metrics

from tclint.analysis.what_if.comparisons import BatchLimits
from tclint.config.settings import Settings
from tclint.cost.rows import Memory
from tclint.engine.provenance import git_state, tool_hash
from tclint.engine.report import EntryError, Report
from tclint.report.formats.json import schema
from tclint.report.metrics import MetricRow, metric_rows
from tclint.report.render import render
from tclint.report.saved import load_report

WHOLE = Draft202012Validator(schema())
RECORD = WHOLE.evolve(schema=schema()["$defs"]["record"])


def one(rows: list[MetricRow], **wanted: object) -> MetricRow:
    """The only row with these dimensions."""
    (row,) = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    return row


def test_values_or_reasons(report: Report) -> None:
    rows = metric_rows(report)
    assert all((row.value is None) == (row.unavailable is not None) for row in rows)
    gpu = {"target": ENTRY.target, "gpu": "a100-sxm4-80gb", "precision": "fp16"}
    assert one(rows, name="step_time_us", **gpu).value == 42_100.0
    assert one(rows, name="forward_flops", target=ENTRY.target).value == ENTRY.flops
    bound = one(rows, name="amdahl_ceiling", gpu="v100-sxm2-16gb")
    assert bound.unavailable == "no bound: the whole step runs on Tensor Cores"
    assert one(rows, name="findings", rule=None, level=None).value == 3
    assert one(rows, name="findings", rule="AMP006").level == "error"
    assert one(rows, name="findings", rule=None, level="warning").value == 1


def test_a_model_that_failed_has_rows_with_the_reason(report: Report) -> None:
    rows = [row for row in metric_rows(report) if row.target == "broken.py:build"]
    assert {(row.name, row.gpu) for row in rows} == {
        (name, gpu)
        for name in ("step_time_us", "readiness_percent")
        for gpu in ("a100-sxm4-80gb", "v100-sxm2-16gb")
    }
    assert all(row.unavailable == "broken.py:build raised ValueError: no such size." for row in rows)


def test_a_missing_file_is_no_model() -> None:
    report = Report(settings=Settings(), errors=(EntryError("missing.py", "There is no file 'missing.py'."),))
    assert not [row for row in metric_rows(report) if row.target == "missing.py"]


def test_every_precision_of_the_gpu() -> None:
    v100 = metrics("v100-sxm2-16gb", 10.0, step_time_us_by_precision={"fp32": 30.0, "fp16": 10.0})
    entry = replace(ENTRY, metrics={"v100-sxm2-16gb": v100})
    rows = metric_rows(Report(settings=Settings(), entries=(entry,)))
    times = {row.precision: row for row in rows if row.name == "step_time_us"}
    assert {precision: row.value for precision, row in times.items()} == {
        "fp32": 30.0, "tf32": None, "fp16": 10.0, "bf16": None,
    }  # fmt: skip
    assert times["bf16"].unavailable == "v100-sxm2-16gb does not compute in bf16"


def lines_of(report: Report) -> list[dict[str, Any]]:
    text = render(report, "jsonl")
    assert text.endswith("\n")
    records = [json.loads(line, parse_constant=pytest.fail) for line in text.split("\n")[:-1]]
    for record in records:
        RECORD.validate(record)
    return records


def test_lines_are_records(report: Report) -> None:
    records = lines_of(report)
    assert records[0]["type"] == "run"
    assert records[-1]["type"] == "summary"
    kinds = [record["type"] for record in records]
    assert (kinds.count("entry"), kinds.count("finding"), kinds.count("error")) == (1, 3, 1)
    broken = dict(next(record for record in records if record["type"] == "finding"))
    del broken["fingerprint"]
    assert not RECORD.is_valid(broken)


def test_lines_and_document_load_alike(report: Report, tmp_path: Path) -> None:
    for name in ("json", "jsonl"):
        (tmp_path / f"report.{name}").write_text(render(report, name))
    assert load_report(tmp_path / "report.jsonl") == load_report(tmp_path / "report.json")


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=hostile_text, layer=hostile_text, message=hostile_text)
def test_any_text_is_one_line_a_record(
    path: str, layer: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = hostile_report(path, layer, message)
    assert lines_of(report)
    for name in ("json", "jsonl"):
        text = render(report, name)
        assert text.isascii()
        Path(f"report.{name}").write_text(text)
    assert load_report("report.jsonl") == load_report("report.json")


def test_tool_hash_is_of_the_code() -> None:
    assert len(tool_hash()) == 16
    assert tool_hash() == tool_hash()


def test_git_state(tmp_path: Path, git: Any) -> None:
    assert git_state(tmp_path) == {"unavailable": "not a git repository"}
    git("init", "-q")
    assert "unavailable" in git_state(tmp_path)
    (tmp_path / "a.py").write_text("a = 1\n")
    git("add", "a.py")
    git("commit", "-q", "-m", "first")
    state = git_state(tmp_path)
    assert state == {
        "commit": git("rev-parse", "HEAD"),
        "commit_time": "2026-01-02T03:04:05+00:00",
        "dirty": False,
    }
    (tmp_path / "a.py").write_text("a = 2\n")
    assert git_state(tmp_path)["dirty"] is True
    sub = tmp_path / "sub"
    sub.mkdir()
    assert git_state(sub)["commit"] == state["commit"]


def test_git_of_others_runs_nothing(tmp_path: Path, git: Any) -> None:
    """A repository's configuration may name programs that git would run."""
    git("init", "-q")
    (tmp_path / "a.py").write_text("a = 1\n")
    git("add", "a.py")
    git("commit", "-q", "-m", "first")
    git("config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    assert git_state(tmp_path)["dirty"] is False
    assert not (tmp_path / "ran").exists()


def test_memory_batches_and_launches_have_rows_with_values_or_reasons(report: Report) -> None:
    memory = Memory(parameters_bytes=400, optimizer_bytes=800, activations_bytes=300)
    limits = BatchLimits(batch=8, largest=64, largest_checkpointed=None)
    measured = metrics("a100-sxm4-80gb", 100.0, memory=memory, batch_limits=limits, launch_count=7)
    gap = replace(ENTRY.not_analysed[0], flops=10, flops_percent=2.5)
    entry = replace(ENTRY, metrics={measured.gpu: measured}, not_analysed=(gap,))
    rows = metric_rows(replace(report, entries=(entry,)))
    values = {row.name: row.value for row in rows if row.precision in ("fp16", None)}
    assert values["memory_parameters_bytes"] == 400
    assert values["memory_gradients_bytes"] == 0
    assert values["largest_batch"] == 64
    assert values["launch_count"] == 7
    assert values["not_analysed_operators"] == 2
    assert values["not_analysed_flops_percent"] == 2.5
    no_blocks = "no repeated blocks that checkpointing would save memory in"
    assert one(rows, name="largest_batch_checkpointed").unavailable == no_blocks
    assert one(rows, name="memory_checkpointed_bytes").unavailable == no_blocks
    assert one(rows, name="host_time_us").unavailable == "not computed"


def test_batches_and_gaps_that_are_unknown_say_why(report: Report) -> None:
    limits = BatchLimits(None, None, None, "the model's inputs have no batch dim that can be resized")
    measured = metrics("a100-sxm4-80gb", 100.0, batch_limits=limits)
    rows = metric_rows(replace(report, entries=(replace(ENTRY, metrics={measured.gpu: measured}),)))
    for name in ("largest_batch", "largest_batch_checkpointed"):
        assert one(rows, name=name).unavailable == limits.unknown
    assert one(rows, name="not_analysed_flops_percent").unavailable == "the FLOPs of fft_rfft are unknown"
