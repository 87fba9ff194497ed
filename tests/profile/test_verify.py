"""`tclint verify`: a model's step run under torch.profiler. Here on the CPU; the tests add the kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from profile_support import A100, ADD, SGEMM, TraceWriter

from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.core.document import as_text
from tclint.core.errors import TargetError, UsageError
from tclint.profile.document import MOST, profile_document
from tclint.profile.recording import STEPS, Recording, record, record_here
from tclint.profile.verify import verify
from tclint.tracing.worker.torch_probe import Torch

torch = pytest.importorskip("torch")

MODELS = '''\
import torch
from torch import nn


class Net(nn.Module):
    """Two convolutions, and products of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Linear(64, 1000)

    def forward(self, x, ids):
        return self.head(self.body(x).mean((2, 3))) + ids.sum()


def build():
    return Net(), (torch.zeros(4, 32, 64, 64), torch.ones(4, dtype=torch.long))


def plain():
    return Net()


def head():
    return nn.Linear(512, 1001), (torch.zeros(4096, 512),)


class Fails(nn.Linear):
    def forward(self, x):
        if x.device.type == "cpu":
            raise ValueError("no CPU, please")
        return super().forward(x)


def fails():
    return Fails(64, 64)
'''
KERNELS = {
    "aten::addmm": (SGEMM, 20.0),
    "aten::mm": (SGEMM, 20.0),
    "aten::mkldnn_convolution": ("implicit_convolve_sgemm", 100.0),
    "aten::clamp_min": (ADD, 5.0),
    "aten::addcdiv_": (ADD, 3.0),
}
GPU = Torch("2.13.0", "13.0", ("NVIDIA A100-SXM4-80GB",))
SETTINGS = Settings(mode="infer", precision="fp32", timeout_s=120)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODELS)
    switches = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [one.allow_tf32 for one in switches]
    yield
    for one, value in zip(switches, before, strict=True):
        one.allow_tf32 = value  # every recording sets them


def on_cpu(slowness: Callable[[Recording], float] = lambda _: 1.0) -> Callable[[Recording], None]:
    """Runs steps on the CPU, and gives their operators the kernels of a GPU."""

    def run(recording: Recording) -> None:
        record_here(replace(recording, device="cpu"))
        path = Path(recording.path)
        document = json.loads(path.read_text())
        writer, gpu_us = TraceWriter(), 1e9
        spans = (event for event in document["traceEvents"] if event.get("ph") == "X")
        for event in sorted(spans, key=lambda event: event["ts"]):
            kernel, time_us = KERNELS.get(event["name"], ("", 0.0))
            if kernel:
                time_us *= slowness(recording)
                writer.launch_from(event, document["traceEvents"], kernel, gpu_us, time_us)
                gpu_us += time_us
        document["traceEvents"] += writer.events
        document["deviceProperties"] = [A100]
        path.write_text(json.dumps(document))

    return run


def test_a_training_step_and_the_fix_of_a_finding() -> None:
    ran: list[Recording] = []

    def slowness(recording: Recording) -> float:
        ran.append(recording)
        return 0.5 if recording.settings.layout == "channels_last" else 1.0

    settings = replace(
        SETTINGS, mode="train", precision="bf16", batch=2, inputs=("x=4,32,16,16", "ids=int64[4]<9")
    )
    found = verify("net.py:plain", settings, finding="fmt001", run=on_cpu(slowness), torch=GPU)
    assert found.fix is not None
    assert (found.fix.code, found.fix.change) == ("FMT001", "layout channels_last")
    assert {one.settings.layout for one in ran} == {"as_traced", "channels_last"}
    assert found.fix.after_us == pytest.approx(0.5 * found.fix.before_us)
    assert found.fix.predicted_after_us < found.fix.predicted_before_us
    assert found.profile.summary.backward_us > 0
    assert found.profile.summary.optimizer_us > 0
    text = " ".join(as_text(profile_document([], [], [found], MOST["brief"]), 100).split())
    assert "FMT001 with its fix (layout channels_last): measured" in text
    assert "(50 % gained); predicted" in text


def test_a_fix_that_is_an_edit_and_a_finding_that_is_not_there() -> None:
    def never(_: Recording) -> None:
        raise AssertionError

    with pytest.raises(UsageError, match="verify the copy as a target of its own"):
        verify("net.py:head", replace(SETTINGS, precision="fp16"), finding="DIM001", run=never, torch=GPU)
    with pytest.raises(UsageError, match=r"has no finding FMT001; it has .*DIM001"):
        verify("net.py:head", replace(SETTINGS, precision="fp16"), finding="FMT001", run=never, torch=GPU)


def test_a_model_that_fails_only_when_it_runs() -> None:
    settings = replace(SETTINGS, inputs=("2,64",))

    def in_its_own_process(recording: Recording) -> None:
        record(replace(recording, device="cpu"))

    with pytest.raises(TargetError, match=r"net.py:fails could not be run: ValueError: no CPU, please"):
        verify("net.py:fails", settings, run=in_its_own_process, torch=GPU)


@pytest.mark.parametrize(
    ("found", "reason"),
    [(Torch("2.13.0+cpu", "", ()), "torch 2.13.0+cpu sees none"), (None, "torch is not installed")],
)
def test_what_it_needs_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, found: Torch | None, reason: str
) -> None:
    monkeypatch.setattr("tclint.tracing.worker.torch_probe.probe", lambda: found)
    result = CliRunner().invoke(cli, ["verify", "net.py:build", "--isolated"])
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: 'tclint verify' runs the model on a CUDA device, and {reason}; record a trace where "
        "there is one, and give it to 'tclint profile TRACE TARGET'.\n"
    )
    assert result.stdout == ""


def test_a_step_is_run_and_stands_beside_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tclint.tracing.worker.torch_probe.probe", lambda: GPU)
    monkeypatch.setattr(verify, "__defaults__", ((), "", lambda _: None, on_cpu(), None))
    Path("pyproject.toml").write_text("[tool.tclint]\ntensor-parallel = 2\n")
    options = "--mode infer --precision fp32 --format json"
    result = CliRunner().invoke(cli, ["verify", "net.py:build", *options.split()])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert list(document["entries"][0]["metrics"]) == ["a100-sxm4-80gb"]
    said = " ".join(document["entries"][0]["assumptions"])
    assert "tensor parallel" not in said, "one GPU has run the whole model"
    profile = document["profile"]
    assert profile["path"] == "net.py:build, run here"
    assert profile["fix"] is None
    assert profile["alignment"]["steps"] == STEPS
    measured = {row["module_path"]: row["measured_us"] for row in profile["ops"]}
    assert measured["body.0"] == measured["body.2"] == pytest.approx(100)
    assert measured["head"] == pytest.approx(20)
    assert profile["said"] == [
        f"{STEPS} steps recorded after 7 to warm up, random weights unless the builder loads some, random "
        "inputs unless the target has some, clocks as they are"
    ]


@pytest.mark.parametrize("change", [{"precision": "int8"}, {"input_sets": ("2,64",)}, {"phase": "prefill"}])
def test_what_it_does_not_run(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="in precisions of torch's own"):
        verify("net.py:build", replace(SETTINGS, **change), torch=GPU)
