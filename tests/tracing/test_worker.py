"""Worker processes: whatever the user's code does becomes a graph or one clear sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.tracing import TraceResult, trace_targets

MODEL = """
import ctypes, os, subprocess, sys, time
import torch
from torch import nn

def good():
    print("hello from good")
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU())

def with_inputs():
    return nn.Linear(6, 2), torch.zeros(5, 6)

def exits():
    sys.exit("enough")

def exits_hard():
    os._exit(3)

def crashes():
    ctypes.string_at(0)

def hangs():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.close(os.open("hanging", os.O_CREAT))
    time.sleep(600)

def raises():
    return nn.Linear("four", 3)

def eats_memory():
    blocks = []
    while True:
        blocks.append(bytearray(64 << 20))

def eats_torch_memory():
    import numpy
    return torch.from_numpy(numpy.ones(1 << 31))

def returns_text():
    return "model"

def returns_nothing():
    pass

def asks():
    return nn.Linear(int(input("size? ")), 2)

def chatters():
    for _ in range(5000):
        print("x" * 99)
    return nn.Linear(4, 2)

class FailsForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(10, 10)
    def forward(self, x):
        x = self.conv(x).mean((2, 3))
        return self.fc(x)  # fails

class ExitsInForward(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
    def forward(self, x):
        raise SystemExit(4)
"""

LINE_THAT_FAILS = MODEL[: MODEL.index("# fails")].count("\n") + 1

EXAMPLES = """
import torch
from torch import nn

def example_inputs():
    return {"x": torch.randn(16, 4), "scale": torch.ones(16, 1)}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
    def forward(self, x, scale):
        return self.fc(x) * scale
"""

SIZED = """
import torch
from torch import nn

def example_inputs():
    return torch.randn(int(torch.rand(100_000).sum().item()), 400)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(400, 400)
        self.head = nn.Linear(400, int(self.fc.weight.sum().item()))
    def forward(self, x):
        return self.head(self.fc(x))
"""

SETTINGS = Settings(timeout_s=60.0, memory_limit_mib=2048)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("worker")
    (path / "model.py").write_text(MODEL)
    (path / "examples.py").write_text(EXAMPLES)
    (path / "sized.py").write_text(SIZED)
    before = os.getcwd()
    os.chdir(path)
    yield path
    os.chdir(before)


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, TraceResult]:
    names = [
        line.split()[1].split("(")[0] for line in MODEL.splitlines() if line.startswith(("def ", "class "))
    ]
    names = [*names, "missing"]
    names.remove("hangs")
    targets = [f"model.py:{name}" for name in names]
    found = list(trace_targets(targets, SETTINGS))
    assert [result.target for result in found] == targets
    return dict(zip(names, found, strict=True))


def message(result: TraceResult) -> str:
    assert result.graph is None
    assert result.error is not None
    text = str(result.error)
    assert "\n" not in text
    return text


def test_a_good_target(results: dict[str, TraceResult]) -> None:
    result = results["good"]
    assert result.error is None
    assert result.graph is not None
    assert [op.name for op in result.graph.ops] == ["linear", "relu"]
    assert result.graph.inputs[0].shape == (8, 4)
    assert result.graph.root_site is not None
    assert result.graph.root_site.line == 6
    assert result.captured_output == "hello from good\n"
    assert set(result.seconds) >= {"import", "build", "trace", "read"}


def test_returned_inputs(results: dict[str, TraceResult]) -> None:
    graph = results["with_inputs"].graph
    assert graph is not None
    assert graph.inputs[0].shape == (5, 6)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exits", ["exits in model.py called sys.exit('enough') (model.py:14)"]),
        ("exits_hard", ["exit code 3"]),
        ("crashes", ["segmentation fault"]),
        ("raises", ["raises in model.py raised TypeError", "(model.py:28)"]),
        ("eats_memory", ["more than 2048 MiB", "--memory-limit"]),
        ("eats_torch_memory", ["more than 2048 MiB", "--memory-limit"]),
        ("returns_text", ["returns_text (model.py:39) returned a str, not an nn.Module"]),
        ("returns_nothing", ["returned nothing, not an nn.Module"]),
        ("asks", ["EOFError"]),
        (
            "FailsForward",
            [
                "raised RuntimeError",
                "in fc (Linear)",
                f"(model.py:{LINE_THAT_FAILS})",
                "float32[8,3,224,224]",
                "--input",
            ],
        ),
        ("ExitsInForward", ["called sys.exit(4)"]),
        ("missing", ["has no 'missing'", "It defines"]),
    ],
)
def test_failures(results: dict[str, TraceResult], name: str, words: list[str]) -> None:
    text = message(results[name])
    for word in words:
        assert word in text


def test_output_is_bounded(results: dict[str, TraceResult]) -> None:
    result = results["chatters"]
    assert result.graph is not None
    assert 1000 < len(result.captured_output) <= 1 << 16


def test_inputs_of_the_file_and_batch(folder: Path) -> None:
    (result,) = trace_targets(["examples.py:Net"], replace(SETTINGS, batch=24))
    graph = result.graph
    assert graph is not None
    assert {spec.input_name: spec.shape for spec in graph.inputs} == {"x": (24, 4), "scale": (24, 1)}
    assert graph.metadata["batch"] == 24
    assert graph.metadata["inputs_from"] == "example_inputs"


def test_what_a_build_and_its_inputs_assumed_is_said(folder: Path) -> None:
    (result,) = trace_targets(["sized.py:Net"], SETTINGS)
    assert result.graph is not None
    what = "value of a weight or table: 1.0 assumed, while building"
    said = [(item.what, item.site.line) for item in result.graph.assumptions if item.site]
    assert said == [(what, 12), (what, 6)]


def test_input_options_come_first(folder: Path) -> None:
    settings = replace(SETTINGS, inputs=("2,4", "scale=float32[2,1]"))
    (result,) = trace_targets(["examples.py:Net"], settings)
    assert result.graph is not None
    assert [(spec.input_name, spec.shape) for spec in result.graph.inputs] == [
        ("x", (2, 4)),
        ("scale", (2, 1)),
    ]


def test_malformed_input_option(folder: Path) -> None:
    with pytest.raises(UsageError, match="is not an input"):
        trace_targets(["examples.py:Net"], replace(SETTINGS, inputs=("2x4",)))


def test_progress_counts_the_targets(folder: Path) -> None:
    said: list[str] = []
    list(trace_targets(["examples.py:Net", "sized.py:Net"], Settings(jobs=1), on_progress=said.append))
    list(trace_targets(["examples.py:Net"], Settings(), on_progress=said.append))
    assert said == [
        "tracing examples.py:Net (1 of 2)",
        "tracing sized.py:Net (2 of 2)",
        "tracing examples.py:Net",
    ]


def test_without_fork(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    good, hard = trace_targets(["model.py:good", "model.py:exits_hard"], SETTINGS)
    assert good.graph is not None
    assert "hello from good" in good.captured_output
    assert "exit code 3" in message(hard)


@pytest.mark.usefixtures("fresh_workers")
def test_a_target_that_hangs_is_stopped_with_all_it_started(folder: Path, spawned: Any) -> None:
    first, second = trace_targets(["model.py:hangs", "model.py:good"], replace(SETTINGS, timeout_s=2.0))
    assert "took longer than 2 s" in message(first)
    assert "--timeout" in message(first)
    assert second.graph is not None
    spawned.assert_gone()


@pytest.mark.usefixtures("fresh_workers")
def test_without_torch(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (result,) = trace_targets(["model.py:good"], SETTINGS)
    assert "tensorcore-lint[torch]" in message(result)


def test_the_caller_imports_no_torch(folder: Path) -> None:
    code = (
        "import sys\n"
        "from tclint.config.settings import Settings\n"
        "from tclint.tracing import trace_targets\n"
        "(result,) = trace_targets(['model.py:good'], Settings())\n"
        "assert result.graph is not None\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": _repository()})


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_caller_is_stopped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawned: Any, how: signal.Signals
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    hanging = folder / "hanging"
    hanging.unlink(missing_ok=True)
    code = (
        "from tclint.config.settings import Settings\n"
        "from tclint.tracing import trace_targets\n"
        "list(trace_targets(['model.py:hangs'], Settings()))\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": _repository()},
    )
    deadline = time.monotonic() + 30
    while not hanging.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(spawned.running()) >= 3
    caller.send_signal(how)
    caller.wait(20)
    spawned.assert_gone()
    assert not list(tmp_path.iterdir())


def _repository() -> str:
    return str(Path(__file__).parents[2])
