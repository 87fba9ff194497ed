"""Two snapshots of findings and prices: what counts as a difference (benchmarks/compare_findings.py)."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import compare_findings  # noqa: E402
from compare_snapshots import compare, read_snapshot  # noqa: E402
from compare_targets import SETS, Target, sample, write_targets  # noqa: E402

GPU = "a100-sxm4-80gb"


def finding(code: str = "DIM003", line: int = 61, **changed: Any) -> dict[str, Any]:
    return {
        "code": code,
        "message": "The vocabulary of 50257 takes up to 31.4 % of the step.",
        "target": "gpt2.py:build_model",
        "location": {"path": "gpt2.py", "line": line, "column": 1, "module_path": "lm_head"},
        "effect": {GPU: {"cost_us": 1200.0, "gain_us": 300.0}},
        "fix": {"advice": "Pad it to 50304.", "edits": []},
        "fingerprint": "376261994be6257a",
        **changed,
    }


def record(target: str = "gpt2.py:build_model", **changed: Any) -> dict[str, Any]:
    return {
        "target": target,
        "digest": "abc",
        "tclint": "22762c04",
        "errors": [],
        "entries": [
            {
                "target": target,
                "op_count": 211,
                "flops": 10**12,
                "graph_hash": "one",
                "metrics": {GPU: {"step_time_us": 38754.4, "memory": {"total_bytes": 10**9}}},
            }
        ],
        "findings": [finding(), finding("ARC016", 73)],
        **changed,
    }


def compared(new: dict[str, Any]) -> tuple[list[str], int]:
    return compare({"one": record()}, {"one": new})


def test_equal_snapshots_are_identical() -> None:
    lines, status = compared(record())
    assert (lines, status) == (["1 of 1 targets identical (100.0 %); 2 findings in the old snapshot"], 0)


def test_lost_and_new_findings_are_named_by_code_and_place() -> None:
    lines, status = compared(record(findings=[finding(), finding("ARC016", 74)]))
    assert status == 1
    assert lines[0] == "one"
    assert lines[1].startswith("  lost     ARC016 gpt2.py:73 lm_head: The vocabulary")
    assert lines[2].startswith("  new      ARC016 gpt2.py:74 lm_head: The vocabulary")
    assert lines[-1].startswith("0 of 1 targets identical (0.0 %)")


def test_one_of_two_findings_of_a_code_at_a_place_is_not_lost_unseen() -> None:
    twice = record(findings=[finding(), finding()])
    lines, status = compare({"one": twice}, {"one": record(findings=[finding()])})
    assert status == 1
    assert [line for line in lines if "lost" in line]


def test_findings_in_another_order_are_the_same() -> None:
    assert compared(record(findings=record()["findings"][::-1]))[1] == 0


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"message": "The vocabulary takes up to 31.4 % of the step."}, "changed  DIM003"),
        ({"message": "The vocabulary of 50257 takes up to 31.6 % of the step."}, "changed  DIM003"),
        ({"message": "The vocabulary of 50258 takes up to 31.4 % of the step."}, "changed  DIM003"),
        ({"fix": {"advice": "Pad it to 50304.", "edits": [{"start": [1, 1]}]}}, "changed  DIM003"),
        ({"effect": {GPU: {"cost_us": 1200.0, "gain_us": 300.9}}}, "gain_us: 300.0 -> 300.9 (+0.30 %)"),
        ({"effect": {GPU: {"cost_us": 1200.0, "gain_us": None}}}, "gain_us: 300.0 -> None"),
        ({"effect": {"unknown": "no shapes"}}, "price    DIM003"),
    ],
)
def test_a_finding_that_says_otherwise_differs(changed: dict[str, Any], shown: str) -> None:
    lines, status = compared(record(findings=[finding(**changed), finding("ARC016", 73)]))
    assert status == 1
    assert shown in lines[1]


@pytest.mark.parametrize(
    "changed",
    [
        {"message": "The vocabulary of 50257 takes up to 31.5 % of the step."},
        {"effect": {GPU: {"cost_us": 1200.0, "gain_us": 300.2}}},
        {"fingerprint": "another"},
    ],
)
def test_what_rounding_changes_does_not_count(changed: dict[str, Any]) -> None:
    assert compared(record(findings=[finding(**changed), finding("ARC016", 73)]))[1] == 0


@pytest.mark.parametrize(
    ("name", "value", "counts"),
    [("op_count", 212, True), ("flops", 2 * 10**12, True), ("graph_hash", "two", False)],
)
def test_figures_of_the_model_are_compared(name: str, value: object, counts: bool) -> None:
    new = copy.deepcopy(record())
    new["entries"][0][name] = value
    lines, status = compared(new)
    assert status == counts
    assert (f"  figure   {name}" in lines[1] if counts else len(lines) == 1) is True


def test_step_times_and_memory_are_compared_on_every_gpu() -> None:
    new = copy.deepcopy(record())
    new["entries"][0]["metrics"][GPU]["step_time_us"] *= 1.002
    new["entries"][0]["metrics"][GPU]["memory"]["total_bytes"] += 10**7
    lines, _ = compared(new)
    assert [line.split(":")[0].split(".")[-1] for line in lines[1:3]] == ["step_time_us", "total_bytes"]


@pytest.mark.parametrize(
    "changed", [{"errors": ["no inputs found"]}, {"entries": []}, {"digest": "other"}, {"findings": []}]
)
def test_failures_and_other_files_differ(changed: dict[str, Any]) -> None:
    assert compared(record(**changed))[1] == 1


def test_a_target_that_failed_in_both_is_named() -> None:
    failed = record(errors=["no inputs found"], entries=[], findings=[])
    lines, status = compare({"one": failed}, {"one": failed})
    assert status == 0
    assert lines[0].endswith("alone: one")


def test_targets_of_one_snapshot_only_differ_unless_left_out() -> None:
    both = {"one": record(), "two": record()}
    lines, status = compare(both, {"one": record()})
    assert status == 1
    assert lines[:2] == ["two", "  only in the old snapshot"]
    assert compare(both, {"one": record()}, only="one")[1] == 0
    lines, status = compare(both, {"one": record()}, common=True)
    assert status == 0
    assert lines[0] == "left out, because one snapshot lacks them: 1 targets"
    assert compare({}, {})[1] == 1
    assert compare({"one": record()}, {"two": record()}, common=True)[1] == 1


def test_one_differing_target_in_a_hundred_is_allowed_and_shown() -> None:
    old = {f"target {index}": record() for index in range(200)}
    new = {**old, "target 7": record(findings=[]), "target 8": record(findings=[])}
    lines, status = compare(old, new)
    assert status == 0
    assert lines[-1].startswith("198 of 200 targets identical (99.0 %)")
    assert compare(old, {**new, "target 9": record(findings=[])})[1] == 1


def test_a_snapshot_of_two_versions_is_told() -> None:
    lines, _ = compare({"one": record(), "two": record(tclint="other")}, {"one": record(), "two": record()})
    assert "the old snapshot was taken with 2 different versions of tclint" in lines


def test_a_line_that_a_killed_run_left_half_written_is_taken_again(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.jsonl"
    whole = json.dumps(record("one")) + "\n"
    path.write_text(whole + json.dumps(record("two"))[:50])
    assert set(read_snapshot(path)) == {"one"}
    assert path.read_text() == whole


def test_records_hold_what_is_said_of_their_target_alone() -> None:
    report = {
        "tool": {"hash": "22762c04"},
        "entries": [{"target": "a.py:build"}, {"target": "b.py:build"}],
        "findings": [
            finding(target="a.py:build"),
            finding(target=None, location={"path": "a.py", "line": 1}),
            finding(target=None, location={"path": "b.py", "line": 1}),
        ],
        "errors": [{"target": "c.py:build", "message": "no inputs found"}],
    }

    def of(target: Target) -> tuple[int, int, list[str]]:
        found = compare_findings.record_of(target, report)
        return len(found["entries"]), len(found["findings"]), found["errors"]

    assert of(Target("fixtures", "a.py:build")) == (1, 1, [])
    assert of(Target("fixtures", "a.py", is_model=False)) == (0, 1, [])
    assert of(Target("fixtures", "c.py:build")) == (0, 0, ["no inputs found"])
    assert of(Target("fixtures", "d.py:build")) == (0, 0, ["the report does not mention it"])


def test_paths_do_not_depend_on_where_things_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, packages = tmp_path / "work", tmp_path / "packages of mine"
    work.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(packages))
    comparable = compare_findings.Runner("tclint", work).comparable
    for text, shown in (
        (f'"{packages}/timm/resnet.py"', '"packages/timm/resnet.py"'),
        ('"../packages of mine/timm/resnet.py"', '"packages/timm/resnet.py"'),
        ("see /home/me/.venv/lib/python3.11/site-packages/timm/resnet.py:3", "see packages/timm/resnet.py:3"),
        (f"no {work}/model.py", "no model.py"),
        (f'"{BENCHMARKS}/zoo_timm.py"', '"benchmarks/zoo_timm.py"'),
    ):
        assert comparable(text) == shown


def test_the_sample_covers_every_family_of_timm(tmp_path: Path) -> None:
    assert len({family for _, family, _ in sample("timm")}) > 90
    assert len(sample("transformers")) > 30
    targets = write_targets(tmp_path, SETS)
    names = [target.name for target in targets]
    assert len(set(names)) == len(names)
    for target in targets:
        path = tmp_path / target.argument.partition(":")[0]
        assert path.exists() or target.argument.startswith(("timm:", "hf:")), target.name


def test_the_command_takes_a_snapshot_goes_on_with_it_and_compares(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(BENCHMARKS / "compare_findings.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    old, new = str(tmp_path / "old.jsonl"), str(tmp_path / "new.jsonl")
    taken = run("snapshot", old, "--sets", "fixtures", "--only", "ncf")
    assert taken.returncode == 0, taken.stderr
    shutil.copy(old, new)
    records = read_snapshot(Path(old))
    assert set(records) == {"fixtures/ncf.py:build_model", "fixtures/ncf.py (read)"}
    model = records["fixtures/ncf.py:build_model"]
    assert not model["errors"]
    assert {entry["location"]["path"] for entry in model["findings"]} == {"fixtures/ncf.py"}
    assert len(model["entries"][0]["metrics"]) == 2
    assert "2 targets, 0 to do" in run("snapshot", old, "--sets", "fixtures", "--only", "ncf").stderr
    same = run("compare", old, new)
    assert (same.returncode, same.stdout[:22]) == (0, "2 of 2 targets identic")
    text = re.sub(r'"step_time_us": (?=\d)', '"step_time_us": 1', Path(new).read_text())
    Path(new).write_text(text)
    assert "1 targets, 0 to do" in run("snapshot", old, "--only", "ncf.py:", "--every", "7").stderr
    other = run("compare", old, new)
    assert other.returncode == 1
    assert "step_time_us" in other.stdout


def test_mistakes_in_the_command_are_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in (
        ["snapshot", str(tmp_path / "a"), "--sets", "fixture"],
        ["snapshot", str(tmp_path / "a"), "--tclint", str(tmp_path / "none")],
        ["compare", str(tmp_path / "a"), str(tmp_path / "b")],
    ):
        with pytest.raises(SystemExit) as ending:
            compare_findings.main(arguments)
        assert ending.value.code == 2
    assert "no set is called 'fixture'" in capsys.readouterr().err
