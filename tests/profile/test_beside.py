"""A trace beside the model that it is of. torch records the operators on the CPU; the kernels are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from profile_support import A100, ADD, FP16_GEMM, NCCL, SGEMM, SOFTMAX, TraceWriter

from tclint.cli.main import cli
from tclint.profile.beside import recorded_precision
from tclint.profile.reader import read_trace
from tclint.report.formats.json import schema

torch = pytest.importorskip("torch")

MODEL = '''\
"""A classifier of 1,001 classes."""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(512, 1024)
        self.norm = nn.LayerNorm(1024)
        self.fc2 = nn.Linear(1024, 1001)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.fc2(self.norm(torch.relu(self.fc1(x)))), dim=-1)


def build() -> nn.Module:
    return Net()
'''
KERNELS = {
    "aten::addmm": (SGEMM, 100.0),
    "aten::mm": (SGEMM, 60.0),
    "aten::native_layer_norm": ("void at::native::vectorized_layer_norm_kernel<float>(int)", 10.0),
    "aten::clamp_min": (ADD, 5.0),
    "aten::_softmax": (SOFTMAX, 20.0),
}
"""What a GPU would run for an operator, and how long."""


def with_kernels(path: Path) -> None:
    """Give the operators of a trace of the CPU the kernels of a GPU, one behind the other."""
    document = json.loads(path.read_text())
    writer = TraceWriter()
    gpu_us = 1e9
    for event in sorted(
        (event for event in document["traceEvents"] if event.get("ph") == "X"), key=lambda event: event["ts"]
    ):
        kernel, time_us = KERNELS.get(event["name"], ("", 0.0))
        if kernel:
            writer.launch_from(event, document["traceEvents"], kernel, gpu_us, time_us)
            gpu_us += time_us
    document["traceEvents"] += writer.events
    document["deviceProperties"] = [A100]
    path.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model's file, and traces of its inference and of two training steps."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "net.py").write_text(MODEL)
    scope: dict[str, Any] = {"__name__": "net"}
    exec(MODEL, scope)
    model, x = scope["build"](), torch.randn(64, 512)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        torch.profiler.profile(activities=activities, record_shapes=True) as inference,
        torch.no_grad(),
    ):
        model(x)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    with torch.profiler.profile(activities=activities, record_shapes=True, schedule=schedule) as training:
        for _ in range(3):
            model(x).square().sum().backward()
            training.step()
    for name, profile in (("infer", inference), ("train", training)):
        path = folder / f"{name}.json"
        profile.export_chrome_trace(str(path))
        with_kernels(path)
    return folder


@pytest.fixture(autouse=True)
def _in_folder(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recorded)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["profile", *arguments, "--input", "64,512", "--isolated"])


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_every_operator_of_an_inference_is_matched() -> None:
    profile = document("infer.json", "net.py:build")["profile"]
    alignment = profile["alignment"]
    assert (alignment["matched_ops"], alignment["ops"]) == (5, 5)
    assert (alignment["matched_calls"], alignment["calls"]) == (5, 5)
    assert alignment["matched_percent"] == 100
    assert alignment["unmatched"] == {}
    assert profile["said"] == ["GPU a100-sxm4-80gb", "mode infer", "fp32, no autocast"]
    assert {(row["name"], row["module_path"]): row["measured_us"] for row in profile["ops"]} == {
        ("linear", "fc1"): 100,
        ("linear", "fc2"): 100,
        ("softmax", ""): 20,
        ("layer_norm", "norm"): 10,
        ("relu", ""): 5,
    }


def test_backward_time_belongs_to_the_forward_operator() -> None:
    profile = document("train.json", "net.py:build")["profile"]
    assert profile["said"][1] == "mode train"
    assert profile["alignment"]["steps"] == 2
    measured = {row["module_path"]: row["measured_us"] for row in profile["ops"] if row["name"] == "linear"}
    # The first layer's input needs no gradient: one product of 60 us, the second layer has two.
    assert measured == {"fc1": 160, "fc2": 220}


def test_findings_have_measured_beside_predicted() -> None:
    found = document("infer.json", "net.py:build", "--precision", "fp16")
    (finding,) = [finding for finding in found["findings"] if finding["code"] == "DIM001"]
    assert finding["location"]["module_path"] == "fc2"
    measured = finding["measured"]["a100-sxm4-80gb"]
    assert measured["time_us"] == 100
    assert (measured["ops"], measured["matched_ops"]) == (1, 1)
    assert measured["predicted_us"] == pytest.approx(finding["effect"]["a100-sxm4-80gb"]["cost_us"], abs=0.01)


def test_the_schema_describes_what_is_measured() -> None:
    strict = json.loads(json.dumps(schema()))
    for part in (strict["$defs"]["finding"], *strict["$defs"]["profile"]["properties"].values(), strict):
        part["additionalProperties"] = False
    found = document("infer.json", "net.py:build", "--precision", "fp16")
    jsonschema.validate(found, strict)
    assert found["profile"]["gpu"] == "NVIDIA A100-SXM4-80GB"
    del found["findings"][0]["measured"]["a100-sxm4-80gb"]["time_us"]
    with pytest.raises(jsonschema.ValidationError, match="time_us"):
        jsonschema.validate(found, schema())


@pytest.fixture
def ranks(recorded: Path, tmp_path: Path) -> Path:
    """A folder with three ranks of one inference; the second takes twice as long, the others wait for it."""
    for rank, (slowness, waits_us) in enumerate([(1, 250.0), (2, 15.0), (1, 250.0)]):
        trace = json.loads((recorded / "infer.json").read_text())
        trace["distributedInfo"] = {"rank": rank}
        kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
        for event in kernels:
            event["dur"] *= slowness
        end_us = kernels[-1]["ts"] + 1e6
        exchange = {**kernels[-1], "name": NCCL, "ts": end_us, "dur": waits_us}
        trace["traceEvents"].append({**exchange, "args": {**exchange["args"], "correlation": -1}})
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    return tmp_path


def test_every_rank_is_compared(ranks: Path) -> None:
    profile = document(str(ranks), "net.py:build")["profile"]
    assert [row["rank"] for row in profile["ranks"]] == [1, 0, 2]
    assert [row["measured_us"] for row in profile["ranks"]] == [470, 235, 235]
    assert len({row["predicted_us"] for row in profile["ranks"]}) == 1
    assert profile["rank"] == 1
    text = " ".join(run(str(ranks), "net.py:build").stdout.split())
    assert (
        "slowest: rank 1, kernels 470 us; fastest: rank 2, 235 us (50 % less), which spends 235 us more in "
        "communication, where it waits for the others" in text
    )
    assert "rank 1 100 % 470 us" in text
    assert "rank 2 100 % 235 us" in text
    assert "rank 0, no steps marked" not in text
    for name in ("markdown", "html"):
        shown = run(str(ranks), "net.py:build", "--format", name).stdout
        assert "slowest: rank 1" in shown
        assert "235 us" in shown
    alone = CliRunner().invoke(cli, ["profile", str(ranks), "--format", "json"])
    assert Path(json.loads(alone.stdout)["slowest_first"][0]).name == "rank1.json"


def test_ranks_of_different_gpus_have_no_one_prediction(ranks: Path) -> None:
    path = ranks / "rank2.json"
    path.write_text(path.read_text().replace("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"))
    result = run(str(ranks), "net.py:build")
    assert result.exit_code == 2
    assert "different GPUs" in result.stderr
    assert CliRunner().invoke(cli, ["profile", str(ranks)]).exit_code == 0


def test_text_markdown_and_html() -> None:
    text = " ".join(run("infer.json", "net.py:build", "--precision", "fp16").stdout.split())
    assert "beside net.py:build (GPU a100-sxm4-80gb, mode infer):" in text
    assert "matched 5 of 5 ops of the model, 5 of 5 operators of the trace, 100 % of the time" in text
    assert "measured 100 us for the same ops" in text
    markdown = run("infer.json", "net.py:build", "--format", "markdown").stdout
    assert "## Beside the model" in markdown
    assert "| linear fc1 | 100 us |" in markdown
    page = run("infer.json", "net.py:build", "--format", "html").stdout
    assert '<th scope="row">linear fc1</th><td class="number">100 us</td>' in page


def test_calls_of_other_sizes_are_not_matched() -> None:
    result = CliRunner().invoke(
        cli, ["profile", "infer.json", "net.py:build", "--input", "8,512", "--isolated", "--format", "json"]
    )
    profile = json.loads(result.stdout)["profile"]
    assert profile["alignment"]["matched_ops"] == 0
    assert sum(profile["alignment"]["unmatched"].values()) == 235


def test_without_sizes_name_and_order_decide(recorded: Path) -> None:
    path = recorded / "no_sizes.json"
    trace = json.loads((recorded / "infer.json").read_text())
    for event in trace["traceEvents"]:
        for key in ("Input Dims", "Input type", "Input Strides"):
            event.get("args", {}).pop(key, None)
    path.write_text(json.dumps(trace))
    alignment = document(str(path), "net.py:build")["profile"]["alignment"]
    assert alignment["matched_ops"] == 5
    assert alignment["matched_by_name"] == 5


def test_a_call_without_sizes_is_the_op_between_its_neighbours(recorded: Path) -> None:
    (recorded / "mlp.py").write_text(
        "from torch import nn\n"
        "def build(): return nn.Sequential(nn.Linear(512, 256), nn.Linear(256, 64), nn.Linear(64, 8))\n"
    )
    scope: dict[str, Any] = {}
    exec((recorded / "mlp.py").read_text(), scope)
    path = recorded / "mlp.json"
    with torch.profiler.profile(record_shapes=True) as profile, torch.no_grad():
        scope["build"]()(torch.randn(64, 512))
    profile.export_chrome_trace(str(path))
    with_kernels(path)
    trace = json.loads(path.read_text())
    _, second, _ = (event for event in trace["traceEvents"] if event.get("name") == "aten::linear")
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and 0 <= event["ts"] - second["ts"] < second["dur"]:
            event["args"].pop("Input Dims", None)
    path.write_text(json.dumps(trace))
    alignment = document(str(path), "mlp.py:build")["profile"]["alignment"]
    assert (alignment["matched_ops"], alignment["matched_by_name"]) == (3, 1)


def test_a_gpu_without_figures_is_asked_for(recorded: Path) -> None:
    path = recorded / "prototype.json"
    trace = json.loads((recorded / "infer.json").read_text())
    trace["deviceProperties"][0]["name"] = "NVIDIA PG509-210"
    path.write_text(json.dumps(trace))
    result = run(str(path), "net.py:build")
    assert result.exit_code == 2
    assert "closest GPU with --gpu" in result.stderr
    assert run(str(path), "net.py:build", "--gpu", "a100").exit_code == 0


def test_the_traces_gpu_counts_and_not_that_of_the_configuration(recorded: Path) -> None:
    config = recorded / "tclint.toml"
    config.write_text('[tool.tclint]\ngpu = ["h100"]\nmode = "train"\nprecision = "bf16"\n')
    arguments = ["infer.json", "net.py:build", "--input", "64,512", "--config", str(config)]
    result = CliRunner().invoke(cli, ["profile", *arguments, "--format", "json"])
    said = json.loads(result.stdout)["profile"]["said"]
    assert said == ["GPU a100-sxm4-80gb", "mode infer", "fp32, no autocast"]


def test_a_target_that_is_no_model() -> None:
    result = run("infer.json", "net.py")
    assert result.exit_code == 2
    assert "is not a model target" in result.stderr


def test_a_model_that_cannot_be_built() -> None:
    result = run("infer.json", "net.py:missing")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("dtype", "kernel", "casts", "precision"),
    [
        ("c10::Half", FP16_GEMM, True, "fp16"),
        ("c10::Half", FP16_GEMM, False, "pure-fp16"),
        ("c10::BFloat16", FP16_GEMM.replace("fp16", "bf16"), False, "pure-bf16"),
        ("float", SGEMM, False, "fp32"),
        ("float", "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4", False, "tf32"),
    ],
)
def test_the_precision_is_the_traces(
    tmp_path: Path, dtype: str, kernel: str, casts: bool, precision: str
) -> None:
    writer = TraceWriter()
    began = writer.op("aten::linear", [(kernel, 10)], [[64, 512], [1024, 512], [1024]], dtype)
    if casts:
        writer.span("aten::to", began + 1, 2)
    trace = read_trace(writer.write(tmp_path / "trace.json"))
    assert recorded_precision(trace) == precision
