"""`tclint fleet` and `tclint merge`: many targets, results as they come, going on after a stop."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli
from tclint.fleet import bulk, processes
from tclint.fleet.results import locked
from tclint.tracing import trace_runs

Run = Callable[..., Result]

MODELS = """
import torch
from torch import nn

class Wide(nn.Module):
    def __init__(self, width=1000):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, 512))

    def forward(self, x):
        return self.layers(x)

def build_small():
    return Wide(64)

def build_large():
    return Wide(2048)

def fails():
    raise ValueError("no such model")

def hangs():
    import time
    time.sleep(600)

def example_inputs():
    return (torch.zeros(256, 512),)
"""


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo.py").write_text(MODELS)


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str) -> Result:
        # More than one process starts others, each of which imports torch.
        jobs = ("--jobs", "1") if arguments[0] == "fleet" and "--jobs" not in arguments else ()
        return CliRunner().invoke(cli, [*arguments, *jobs])

    return invoke


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def names(text: str, *kinds: str) -> list[str]:
    return sorted(
        record["target"] for record in lines(text) if record["type"] in (kinds or ("entry", "error"))
    )


def without_type(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "type"}


def error_line(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


def test_a_target_that_fails_or_hangs_costs_only_itself(run: Run) -> None:
    result = run(
        "fleet",
        "zoo.py:fails",
        "zoo.py:hangs",
        "zoo.py:build_*",
        "--gpu",
        "a100",
        "--timeout",
        "10",
        "--jobs",
        "2",
    )
    assert result.exit_code == 2
    assert names(result.stdout, "entry") == ["zoo.py:build_large", "zoo.py:build_small"]
    assert names(result.stdout, "error") == ["zoo.py:fails", "zoo.py:hangs"]
    assert lines(result.stdout)[-1]["target"] == "zoo.py:hangs", "the others do not wait for it"


def test_results_are_those_of_check(run: Run) -> None:
    """Entries and findings equal those of a report on the same targets."""
    options = ("--gpu", "a100,v100", "--precision", "bf16", "--isolated")
    found = run("fleet", "zoo.py:Wide", "zoo.py:build_small", *options)
    checked = json.loads(run("check", "zoo.py:Wide", *options, "--format", "json").stdout)
    own = [record for record in lines(found.stdout) if record.get("target") == "zoo.py:Wide"]
    for kind, name in (("entry", "entries"), ("finding", "findings"), ("metric", "metrics")):
        records = [
            {k: v for k, v in record.items() if k != "type"} for record in own if record["type"] == kind
        ]
        assert records, kind
        assert records == [item for item in checked[name] if item["target"] == "zoo.py:Wide"]
    assert lines(found.stdout)[0]["settings"] == checked["settings"]


def test_files_of_targets(run: Run, tmp_path: Path) -> None:
    """Each line has options of its own, which its results are filed under; a line counts once."""
    (tmp_path / "zoo.txt").write_text(
        "# widths\nzoo.py:Wide --arg width=96 --gpu h100\n\nzoo.py:Wide --arg width=128  # aligned\n"
        "zoo.py:Wide --arg width=128\nzoo.py:Wide --input 64,512 --batch=32\n"
    )
    result = run("fleet", "--targets", "zoo.txt", "--gpu", "a100")
    entries = {record["target"]: record for record in lines(result.stdout) if record["type"] == "entry"}
    assert sorted(entries) == [
        "zoo.py:Wide --arg width=128",
        "zoo.py:Wide --arg width=96 --gpu h100",
        "zoo.py:Wide --input 64,512 --batch=32",
    ]
    assert list(entries["zoo.py:Wide --arg width=96 --gpu h100"]["metrics"]) == ["h100-sxm5-80gb"]
    assert list(entries["zoo.py:Wide --arg width=128"]["metrics"]) == ["a100-sxm4-80gb"]
    assert entries["zoo.py:Wide --arg width=128"]["parameters"] == 2 * 128 * 512 + 128 + 512
    assert entries["zoo.py:Wide --input 64,512 --batch=32"]["inputs"][0]["shape"] == [32, 512]


def test_shards_make_the_whole(run: Run, tmp_path: Path) -> None:
    targets = (
        "zoo.py:Wide",
        "zoo.py:build_small",
        "zoo.py:build_large",
        "--gpu",
        "a100",
        "--fail-on",
        "info",
    )
    for part in "12":
        run("fleet", *targets, "--shard", f"{part}/2", "--resume", f"{part}.jsonl")
    parts = [(tmp_path / f"{part}.jsonl").read_text() for part in "12"]
    assert [names(part) for part in parts] == [["zoo.py:Wide", "zoo.py:build_large"], ["zoo.py:build_small"]]
    merged = json.loads(run("merge", "1.jsonl", "2.jsonl", "--format", "json").stdout)
    whole = json.loads(run("check", *targets, "--format", "json").stdout)
    assert {entry["target"]: entry for entry in merged["entries"]} == {
        entry["target"]: entry for entry in whole["entries"]
    }
    assert merged["summary"]["exit_code"] == whole["summary"]["exit_code"] == 1
    assert {row["code"] for row in merged["statistics"]} == {row["code"] for row in whole["statistics"]}
    text = run("merge", "1.jsonl", "2.jsonl")
    assert text.exit_code == 1
    in_order = run("check", *targets).stdout
    assert sorted(text.stdout.splitlines()) == sorted(in_order.splitlines())
    assert "both hold zoo.py:" in error_line(run("merge", "1.jsonl", "1.jsonl"))


def test_resume_goes_on_where_it_stopped(run: Run, tmp_path: Path) -> None:
    """What is done stays, what was cut off is done again, and nothing is double."""
    command = (
        "fleet",
        "zoo.py:Wide",
        "zoo.py:build_small",
        "zoo.py:build_large",
        "--gpu",
        "a100",
        "--jobs",
        "1",
    )
    file = tmp_path / "zoo.jsonl"
    run(*command, "--resume", "zoo.jsonl")
    whole = file.read_text()
    first = next(number for number, record in enumerate(lines(whole)) if record["type"] == "entry")
    kept = "".join(whole.splitlines(keepends=True)[: first + 1])
    file.write_text(whole[: len(kept) + 300])  # killed while it wrote the second
    result = run(*command, "--resume", "zoo.jsonl")
    assert "has 1 of 3 targets already" in result.stderr
    assert file.read_text() == whole
    again = run(*command, "--resume", "zoo.jsonl")
    assert "has 3 of 3 targets already" in again.stderr
    assert file.read_text() == whole


def test_resume_redoes_a_target_of_which_one_entry_was_cut_off(run: Run, tmp_path: Path) -> None:
    """A target with several sets of inputs has an entry for each, or an error."""
    sets = ("--input-set", "8,512", "--input-set", "16,512", "--input-set", "16,513")
    command = ("fleet", "zoo.py:build_small", *sets, "--gpu", "a100", "--resume", "zoo.jsonl")
    file = tmp_path / "zoo.jsonl"
    run(*command)
    whole = file.read_text()
    parts = whole.splitlines(keepends=True)
    kinds = [record["type"] for record in lines(whole)]
    assert kinds[-3:].count("error") >= 1
    for left_out in (1, 2):
        file.write_text("".join(parts[:-left_out]))
        assert "already" not in run(*command).stderr
        assert len(file.read_text().splitlines()) == len(parts)


def test_a_run_that_is_stopped_says_where_its_results_are(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the report is made at the end, finished targets are kept for another run."""
    check = bulk.check
    seen = []

    def stopping(targets: Any, *rest: Any, **named: Any) -> Any:
        seen.extend(targets)
        if len(seen) > 1:
            raise KeyboardInterrupt
        return check(targets, *rest, **named)

    command = ("fleet", "zoo.py:build_small", "zoo.py:build_large", "--gpu", "a100", "--format", "concise")
    monkeypatch.setattr(bulk, "check", stopping)
    stopped = run(*command)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    note = next(line for line in stopped.stderr.splitlines() if "the results so far are in" in line)
    kept = note.rpartition("'--resume ")[2].partition("'")[0]
    assert "has 1 of 2 targets already" in run(*command, "--resume", kept).stderr


def test_a_resumed_run_exits_as_the_whole_would(run: Run) -> None:
    command = ("fleet", "zoo.py:nothing", "--gpu", "a100", "--resume", "zoo.jsonl")
    assert (run(*command).exit_code, run(*command).exit_code) == (2, 2)


def test_resume_leaves_other_files_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("no end of line")
    assert "holds no results" in error_line(run("fleet", "zoo.py:Wide", "--resume", "note.txt"))
    assert (tmp_path / "note.txt").read_text() == "no end of line"
    assert "not a regular file" in error_line(run("fleet", "zoo.py:Wide", "--resume", os.devnull))
    with locked(str(tmp_path / "zoo.jsonl")):
        assert "Another run is writing" in error_line(run("fleet", "zoo.py:Wide", "--resume", "zoo.jsonl"))


def test_files_of_targets_that_windows_editors_saved(run: Run, tmp_path: Path) -> None:
    (tmp_path / "zoo.txt").write_bytes(b"\xef\xbb\xbfzoo.py:build_small # small\r\n\r\n")
    assert names(run("fleet", "--targets", "zoo.txt", "--gpu", "a100").stdout) == ["zoo.py:build_small"]


def test_resume_refuses_other_settings(run: Run, tmp_path: Path) -> None:
    run("fleet", "zoo.py:build_small", "--gpu", "a100", "--resume", "zoo.jsonl")
    before = (tmp_path / "zoo.jsonl").read_text()
    result = run("fleet", "zoo.py:build_small", "--gpu", "h100", "--resume", "zoo.jsonl")
    assert "were made with another gpus" in error_line(result)
    (tmp_path / "zoo.py.txt").write_text("no results\n")
    assert "holds no results" in error_line(run("fleet", "zoo.py:Wide", "--resume", "zoo.py.txt"))
    assert (tmp_path / "zoo.jsonl").read_text() == before


def test_patterns_of_modules_and_libraries(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are listed by reading them, libraries by asking their package."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(MODELS)
    (tmp_path / "timm.py").write_text(
        "from torch import nn\n"
        "def list_models(): return ['mlp_a', 'mlp_b', 'conv_a']\n"
        "def is_model(name): return name in list_models()\n"
        "def create_model(name, pretrained=False): return nn.Linear(64, 64)\n"
    )
    (tmp_path / "transformers.py").write_text("CONFIG_MAPPING = {'small_a': 1, 'small_b': 2, 'large': 3}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run("fleet", "shop.models:build_[s]*", "timm:mlp_*", "--gpu", "a100", "--input", "8,512")
    assert names(result.stdout) == ["shop.models:build_small", "timm:mlp_a", "timm:mlp_b"]
    assert names(run("fleet", "hf:small_*").stdout, "error") == ["hf:small_a", "hf:small_b"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "There are no targets"),
        (("zoo.py:none_*",), "names none of the"),
        (("*.py:Wide",), "pattern in front of the colon"),
        (("nowhere.py:*",), "is not a file or module"),
        (("zoo.py",), "is not a model"),
        (("zoo.py:Wide", "--shard", "3/2"), "--shard expects"),
        (("--targets", "none.txt"), "Cannot read the targets in 'none.txt'"),
        (("--targets", "bad.txt"), "line 1 of bad.txt has '--jobs', which a target cannot set."),
        (("--targets", "quote.txt"), "Line 1 of quote.txt cannot be read"),
        (("zoo.py:Wide", "--gpu", "a1000"), "Unknown GPU"),
        (("zoo.py:Wide", "--baseline", "b.json"), "take no baseline"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "bad.txt").write_text("zoo.py:Wide --jobs 2\n")
    (tmp_path / "quote.txt").write_text("zoo.py:Wide --arg 'width=1\n")
    assert said in error_line(run("fleet", *arguments))


def test_precisions_share_a_trace_and_a_second_run_has_it_all(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced: list[str] = []

    def spied(runs: Any, **options: Any) -> Any:
        traced.extend(target for target, _ in runs)
        return trace_runs(runs, **options)

    monkeypatch.setattr(bulk, "trace_runs", spied)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    os.utime("zoo.py", (time.time() - 60.0,) * 2)
    (tmp_path / "more.txt").write_text("zoo.py:build_small --precision fp32\n")
    command = ("fleet", "zoo.py:Wide", "--targets", "more.txt", "--precision", "fp16,bf16", "--gpu", "a100")
    first = run(*command).stdout
    assert sorted(names(first)) == [
        "zoo.py:Wide --precision bf16", "zoo.py:Wide --precision fp16", "zoo.py:build_small --precision fp32",
    ]  # fmt: skip
    assert traced == ["zoo.py:Wide", "zoo.py:build_small"]
    second = run(*command).stdout
    assert len(traced) == 2
    assert sorted(second.splitlines()) == sorted(first.splitlines())
    settings = {record["target"]: record["settings"] for record in lines(first) if record["type"] == "entry"}
    assert settings["zoo.py:Wide --precision fp16"] == {}
    assert settings["zoo.py:Wide --precision bf16"] == {"precision": "bf16"}
    refused = run("fleet", "zoo.py:Wide", "--precision", "fp17,bf16")
    assert refused.exit_code == 2


def test_one_command_makes_a_report_on_all(run: Run, tmp_path: Path) -> None:
    """A table and files, the same as `merge` makes of the results."""
    command = ("fleet", "zoo.py:build_*", "--gpu", "a100,v100", "--precision", "fp16,bf16")
    streamed = run(*command, "--resume", "zoo.jsonl", "--output", "markdown=first.md", "--fail-on", "info")
    assert streamed.stdout == ""
    result = run(*command, "--fail-on", "info", "--format", "text", "--output", "html=zoo.html")
    merged = run("merge", "zoo.jsonl", "--output", "markdown=second.md")
    assert result.stdout == merged.stdout
    assert result.exit_code == merged.exit_code == streamed.exit_code == 1
    assert "build_small --precision bf16" in result.stdout
    assert "in 2 models" in " ".join(result.stdout.split()), "not in 4: each has two precisions"
    assert "build_small --precision bf16" in (tmp_path / "zoo.html").read_text()
    assert (tmp_path / "first.md").read_text() == (tmp_path / "second.md").read_text()
    both = run(*command, "--output", "json=zoo.json")
    assert names(both.stdout, "entry") == sorted(
        entry["target"] for entry in json.loads((tmp_path / "zoo.json").read_text())["entries"]
    )


def test_a_report_tells_of_targets_that_failed(run: Run) -> None:
    result = run("fleet", "zoo.py:fails", "zoo.py:build_small", "--gpu", "a100", "--format", "concise")
    assert result.exit_code == 2
    assert "no such model" in result.stdout + result.stderr
    assert error_line(run("fleet", "zoo.py:fails", "--format", "table")).startswith("There is no format")


def test_a_process_that_is_ended_costs_only_what_it_lints(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Both processes start at the same time: only one of them can make the folder.
    ended = "import os\ntry: os.mkdir('once')\nexcept FileExistsError: pass\nelse: os._exit(9)\n"
    monkeypatch.setattr(processes, "_SERVE", ended + processes._SERVE)
    result = run("fleet", "zoo.py:build_*", "--gpu", "a100", "--jobs", "2")
    assert len(names(result.stdout, "entry")) == len(names(result.stdout, "error")) == 1
    assert "probably because memory ran out" in result.stderr
