"""What a reader of tclint's advice relies on, held against measurements: whole steps, and what changes gain.

    python benchmarks/end_to_end.py --data DIR [--write docs/explanation/accuracy.md]

Whole steps are end_to_end.csv's published runs of fixtures/resnet50.py and fixtures/bert_large.py, speed-ups
of AMP ratios of two of them. Which operators of profiler traces ran on Tensor Cores is told by their kernels'
names. The other predictor is a roofline at datasheet rates. --write puts the lines at the top of the page.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "fixtures")]

import bert_large  # noqa: E402
import library_steps  # noqa: E402
import mpt  # noqa: E402
import resnet50  # noqa: E402
from accuracy_page import with_summary  # noqa: E402
from library_steps import Step  # noqa: E402
from measurements import timed_alone  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from traces import LEAST_US, precision_of, priced_rows  # noqa: E402

import tclint  # noqa: E402
from tclint.core.toml import parse_toml  # noqa: E402
from tclint.cost.communication import communication_bytes  # noqa: E402
from tclint.cost.estimate import Estimate, estimate  # noqa: E402
from tclint.cost.gpu import Gpu, load_gpu  # noqa: E402
from tclint.cost.kernels.pricing import price_works  # noqa: E402
from tclint.cost.scenario import Scenario  # noqa: E402
from tclint.graph.lowering.work import Attention, AttentionKernel, Convolution, Gemm, Traffic  # noqa: E402
from tclint.graph.ops import Graph  # noqa: E402

BERT_VOCABULARY = 30528
"""run_pretraining.py of those runs rounds 30522 up to a multiple of 8."""
BERT_PREDICTIONS = 20
"""Masked positions of a sequence of 128, `max_predictions_per_seq` of their first phase."""

Row = Mapping[str, str]


@dataclass(frozen=True)
class Line:
    """One figure: predicted against measured, and the roofline against measured."""

    what: str
    n: int
    mean_percent: float
    roofline_percent: float | None
    note: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of CSV files with measured times")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="put the lines at the top of a page")
    arguments = parser.parse_args()
    try:
        lines = list(_lines(arguments.data))
    except FileNotFoundError as error:
        print(f"end_to_end: {error}; --data names the folder with the CSV files", file=sys.stderr)
        return 2
    text = table(lines)
    print(text)
    if arguments.write:
        page = arguments.write.read_text(encoding="utf-8")
        arguments.write.write_text(with_summary(page, text), encoding="utf-8")
    return 0


def table(lines: Sequence[Line]) -> str:
    """As Markdown."""
    rows = ["| what | n | tclint, mean error | roofline, mean error | |", "|---|---|---|---|---|"]
    for line in lines:
        roofline = "" if line.roofline_percent is None else f"{line.roofline_percent:.1f} %"
        rows.append(f"| {line.what} | {line.n} | {line.mean_percent:.1f} % | {roofline} | {line.note} |")
    return "\n".join(rows) + "\n"


def _lines(folder: Path) -> Iterator[Line]:
    rows = list(_read(folder / "end_to_end.csv"))
    steps = [_step(row) for row in rows]
    measured = [1e3 * float(row["step_ms"]) for row in rows]
    errors = [_error(step.step_time_us, time) for step, time in zip(steps, measured, strict=True)]
    plain = [_error(_roofline_us(step), time) for step, time in zip(steps, measured, strict=True)]
    for row, error in zip(rows, errors, strict=True):
        print(
            f"{row['model']:22} {row['gpu']:15} {row['precision']:5} {row['layout']:13} {row['mode']:5} "
            f"{row['step_ms']:>8} ms measured, {error:+6.1f} %",
            file=sys.stderr,
        )
    stated = _within(steps, errors)
    yield Line(
        "whole steps", len(rows), _mean(errors), _mean(plain), f"NVIDIA's DeepLearningExamples; {stated}"
    )
    yield _in_nchw(folder / "whole_steps.csv")
    yield _layouts(folder)
    yield from _language_models(folder / "whole_steps.csv")
    yield from _of_libraries(list(_read(folder / "whole_steps.csv")))
    yield from _amp(rows, steps)
    yield from _tensor_cores(folder / "kernels_from_traces.csv")
    yield _walked(folder / "kernels_from_traces.csv")
    yield _attention(folder / "attention_threads.csv")


def _read(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


def _error(predicted: float, measured: float) -> float:
    return 100 * (predicted / measured - 1)


def _mean(errors: Sequence[float]) -> float:
    return sum(map(abs, errors)) / len(errors)


# --- whole steps


class _Masked(nn.Module):
    """What is predicted of a sequence: run_pretraining.py gathers it before the head."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :BERT_PREDICTIONS].contiguous()


@cache
def _graph(model: str, mode: str) -> Graph:
    name, *sizes = model.split()
    given = {size[0]: int(size[1:]) for size in sizes}
    if name == "resnet50":
        module, inputs = resnet50.build_model(), resnet50.example_inputs(batch=given["b"])
    else:
        module = bert_large.build_model(vocab_size=BERT_VOCABULARY)
        module.mlm_transform = nn.Sequential(_Masked(), module.mlm_transform)
        inputs = bert_large.example_inputs(batch=given["b"], length=given["s"])
    return tclint.trace(module.train(mode == "train"), inputs)


def _in_nchw(path: Path) -> Line:
    """ResNet-50 in PyTorch's own layout, which no constant was fitted to."""
    steps, errors, plain = [], [], []
    for row in _read(path):
        if row["model"] == "resnet50" and row["layout"] == "NCHW":
            step = _step({**row, "model": f"resnet50 b{row['batch']}", "optimizer": "sgd-momentum"})
            measured = 1e3 * float(row["step_ms"])
            steps.append(step)
            errors.append(_error(step.step_time_us, measured))
            plain.append(_error(_roofline_us(step), measured))
    note = f"Lambda's benchmarks; {_within(steps, errors)}"
    return Line("ResNet-50 trained in NCHW", len(errors), _mean(errors), _mean(plain), note)


def _layouts(folder: Path) -> Line:
    """What channels_last saves of ResNet-50's step under AMP, where both layouts were published."""
    steps = list(_read(folder / "whole_steps.csv"))
    reported = parse_toml(Path(__file__).with_name("layout_gains.toml").read_text(encoding="utf-8"))["gain"]
    found = [(row["gpu"], row["faster"], row["source"]) for row in reported]
    nchw = {
        row["gpu"]: int(row["batch"]) / float(row["step_ms"])
        for row in steps
        if (row["model"], row["layout"], row["precision"]) == ("resnet50", "NCHW", "fp16")
    }
    for row in _read(folder / "end_to_end.csv"):
        kind = (row["layout"], row["precision"], row["mode"])
        of_resnet = row["model"].startswith("resnet50") and row["gpu"] in nchw
        if of_resnet and kind == ("channels_last", "fp16", "train"):
            per_ms = int(row["items_per_step"]) / float(row["step_ms"])
            found.append((row["gpu"], per_ms / nchw[row["gpu"]], "Lambda's and NVIDIA's benchmarks"))
    timm = {
        row["layout"]: float(row["samples_per_sec"]) / 1e3
        for row in _read(folder / "models_timm.csv")
        if (row["model"], row["phase"]) == ("resnet50", "train")
    }
    found.append(("rtx-3090", timm["nhwc"] / timm["nchw"], "timm's results"))
    found.append(("rtx-3090", timm["nhwc"] / nchw["rtx-3090"], "Lambda's benchmarks and timm's results"))
    points = []
    for gpu, faster, source in found:
        row = {"model": "resnet50 b256", "gpu": gpu, "precision": "fp16", "mode": "train"}
        by_layout = [
            _step({**row, "layout": layout, "optimizer": "sgd-momentum"}).step_time_us
            for layout in ("channels_last", "NCHW")
        ]
        predicted, measured = 100 * (1 - by_layout[0] / by_layout[1]), 100 * (1 - 1 / faster)
        points.append(predicted - measured)
        print(
            f"resnet50 {gpu:15} channels_last saves {measured:.1f} %, predicted {predicted:.1f} %; {source}",
            file=sys.stderr,
        )
    note = (
        "percentage points of ResNet-50's step, V100, A100 and RTX 3090, in part of two laboratories; "
        f"bias {sum(points) / len(points):+.1f}"
    )
    return Line("gain of channels_last", len(points), _mean(points), None, note)


def _language_models(path: Path) -> Iterator[Line]:
    """MPT's throughput tables: one of 8 GPUs, whose communication is in the measured time alone."""
    found: dict[str, tuple[list[Estimate], list[float], list[float], list[float]]] = {}
    for row in _read(path):
        if row["model"] in mpt.SIZES:
            scenario = Scenario(row["gpu"], "bf16", parallel="fsdp", gpu_count=8)
            sizes = (row["model"], int(row["batch"]), int(row["length"]), row["checkpointed"] == "True")
            graph = mpt.graph_of(*sizes)
            step = estimate(graph, scenario)
            measured = 1e3 * float(row["step_ms"])
            sent_us = communication_bytes(graph, "fsdp", 8) / step.gpu.link_gb_per_s / 1e3
            error = _error(step.step_time_us, measured)
            print(f"{sizes!s:35} {row['gpu']:15} {row['step_ms']:>9} ms, {error:+6.1f} %", file=sys.stderr)
            name = step.gpu.name.partition(" ")[0]
            steps, errors, plain, sending = found.setdefault(name, ([], [], [], []))
            steps.append(step)
            errors.append(error)
            plain.append(_error(_roofline_us(step), measured))
            sending.append(_error(step.step_time_us + sent_us, measured))
    for gpu, (steps, errors, plain, sending) in sorted(found.items()):
        fitted = "; slowdown in steps fitted" if steps[0].gpu.step_slowdown else ""
        note = (
            f"MosaicML's tables, 8 GPUs with FSDP{fitted}; {_within(steps, errors)}; {_mean(sending):.1f} % "
            "if they wait for all that they send at the link's rate"
        )
        yield Line(f"MPT, 125 M to 30 B, {gpu}", len(errors), _mean(errors), _mean(plain), note)


def _of_libraries(rows: Sequence[Row]) -> Iterator[Line]:
    """Steps of models that other packages build; a package that is not installed leaves its lines out."""
    if library_steps.has("transformers"):
        what = "BERT on SQuAD, attention written out"
        yield _line(what, "Lambda's benchmarks", library_steps.squad_steps(rows))
    if library_steps.has("diffusers"):
        steps = library_steps.unet_steps(rows)
        yield _line("Stable Diffusion 1.5, a step of its UNet", "diffusers' documentation", steps)
        yield _compile_gain("Stable Diffusion's", list(zip(steps[::2], steps[1::2], strict=True)))
    if library_steps.has("timm"):
        pairs = library_steps.timm_pairs(rows)
        note = "timm's results; the rows lack the size of the images, which the eager step tells"
        yield _line("compiled networks, inference", note, [fast for _, fast in pairs])
        yield _compile_gain("timm's networks", pairs)


def _line(what: str, note: str, steps: Sequence[Step]) -> Line:
    errors = [step.error_percent for step in steps]
    plain = [_error(_roofline_us(step.price), step.measured_us) for step in steps]
    for step in steps:
        row = step.row
        print(
            f"{row['model']:25} {row['gpu']:15} {row['precision']:9} batch {row['batch']:>4} "
            f"{'compiled' if row['compiled'] == 'True' else '':8} {row['step_ms']:>9} ms, "
            f"{step.error_percent:+6.1f} %",
            file=sys.stderr,
        )
    within = _within([step.price for step in steps], errors)
    return Line(what, len(steps), _mean(errors), _mean(plain), f"{note}; {within}")


def _compile_gain(whose: str, pairs: Sequence[tuple[Step, Step]]) -> Line:
    """Percentage points between predicted and measured shares of the eager step that compiling saves."""
    points = []
    for eager, fast in pairs:
        predicted = 100 * (1 - fast.price.step_time_us / eager.price.step_time_us)
        measured = 100 * (1 - fast.measured_us / eager.measured_us)
        points.append(predicted - measured)
        print(
            f"{eager.row['model']:25} {eager.row['gpu']:15} compiling gains {measured:4.1f} %, "
            f"predicted {predicted:4.1f} %",
            file=sys.stderr,
        )
    note = f"percentage points, {whose} pairs of steps; bias {sum(points) / len(points):+.1f}"
    return Line("gain of torch.compile", len(points), _mean(points), None, note)


def _within(steps: Sequence[Estimate], errors: Sequence[float]) -> str:
    inside = [abs(error) <= step.uncertainty_percent for step, error in zip(steps, errors, strict=True)]
    return f"{100 * sum(inside) / len(inside):.0f} % within the stated error"


def _step(row: Row) -> Estimate:
    values: dict[str, Any] = {"layout": "channels_last"} if row["layout"] == "channels_last" else {}
    scenario = Scenario(row["gpu"], row["precision"], row["mode"], optimizer=row["optimizer"], **values)  # type: ignore[arg-type]
    return estimate(_graph(row["model"], row["mode"]), scenario)


def _roofline_us(step: Estimate) -> float:
    """Every kernel at the datasheet's rate of its units and of DRAM."""
    return sum(
        max(_math_us(work.flops, work, step.gpu, step.scenario.precision), bytes_us)
        for row in step.rows
        for work, bytes_us in [
            (row.work, (row.bytes_read + row.bytes_written) / step.gpu.dram_gb_per_s / 1e3)
        ]
    )


def _math_us(flops: float, work: Any, gpu: Gpu, precision: str) -> float:
    unit = {"float16": "fp16", "bfloat16": "bf16"}.get(work.dtype, "tf32" if "tf32" in precision else "fp32")
    is_product = isinstance(work, (Gemm, Convolution))
    rate = gpu.peak_tflops[unit if is_product and gpu.supports(unit) else "fp32"]
    return flops / rate / 1e6


def _amp(rows: Sequence[Row], steps: Sequence[Estimate]) -> Iterator[Line]:
    """Pairs of runs of one model and GPU of which one is in 16 bits, per item."""
    errors, plain = [], []
    for slow, before in zip(rows, steps, strict=True):
        for fast, after in zip(rows, steps, strict=True):
            same = all(slow[name] == fast[name] for name in ("gpu", "mode", "optimizer"))
            of_one = slow["model"].split()[0] == fast["model"].split()[0]
            if (
                not same
                or not of_one
                or (slow["precision"], fast["precision"])
                not in (
                    ("tf32", "fp16"),
                    ("fp32", "fp16"),
                )
            ):
                continue
            measured = float(fast["items_per_s"]) / float(slow["items_per_s"])
            items = int(fast["items_per_step"]) / int(slow["items_per_step"])
            errors.append(_error(items * before.step_time_us / after.step_time_us, measured))
            plain.append(_error(items * _roofline_us(before) / _roofline_us(after), measured))
    yield Line("speed-up of AMP", len(errors), _mean(errors), _mean(plain), "pairs of those runs")


# --- on Tensor Cores or not


def _tensor_cores(path: Path) -> Iterator[Line]:
    wrong = {"operators": [0.0, 0.0], "their time": [0.0, 0.0]}
    for row, work in priced_rows(list(_read(path))):
        price = price_works([work], load_gpu(row["gpu"]), precision_of(row, work))[0]
        if price is None or not isinstance(work, (Gemm, Convolution)):
            continue
        is_wrong = (row["on_tensor_cores"] == "True") != price.uses_tensor_cores
        for key, weight in (("operators", 1.0), ("their time", float(row["sum_us"]))):
            wrong[key][0] += weight * is_wrong
            wrong[key][1] += weight
    count = int(wrong["operators"][1])
    for key, (missed, total) in wrong.items():
        yield Line(
            f"on Tensor Cores or not, by {key}", count, 100 * missed / total, None, "nine public traces"
        )


# --- one element after the other


def _walked(path: Path) -> Line:
    """Strided, broadcast and transposing kernels of LEAST_US and more, where strides were recorded."""
    errors, plain = [], []
    for row, work in priced_rows(list(_read(path))):
        measured = float(row["measured_us"])
        if (
            measured < LEAST_US
            or not isinstance(work, Traffic)
            or work.walk is None
            or row["strides"] == "null"
        ):
            continue
        gpu = load_gpu(row["gpu"])
        price = price_works([work], gpu, precision_of(row, work))[0]
        assert price is not None
        errors.append(_error(price.time_us, measured))
        plain.append(_error((work.bytes_read + work.bytes_written) / gpu.dram_gb_per_s / 1e3, measured))
    return Line(
        "strided and broadcast kernels",
        len(errors),
        _mean(errors),
        _mean(plain),
        "traces with strides, fitted",
    )


# --- fused attention


_KERNELS: Mapping[str, AttentionKernel] = {
    "FA2": "FlashAttention 2",
    "FA4": "FlashAttention 4",
    "cuDNN": "cuDNN",
    "xformers": "memory-efficient",
}


def _attention(path: Path) -> Line:
    """Times of single kernels in 16 bits, whose names the file gives."""
    errors, plain = [], []
    for row in _read(path):
        kernel = next((found for name, found in _KERNELS.items() if name in row["kernel"]), None)
        length, heads, head_dim = (int(row[name]) for name in ("seq", "heads", "head_dim"))
        work = Attention(
            *(int(row["batch"]), heads, heads, length, length, head_dim, head_dim, "bfloat16"),
            is_causal=row["causal"] == "True",
            is_backward=row["direction"] == "backward",
            kernel=kernel,
        )
        gpu, measured = timed_alone(load_gpu(row["gpu"])), float(row["time_us"])
        price = price_works([work], gpu, "bf16")[0]
        assert price is not None
        errors.append(_error(price.time_us, measured))
        plain.append(_error(work.flops / (1 + work.is_causal) / gpu.peak_tflops["bf16"] / 1e6, measured))
    return Line("attention kernels", len(errors), _mean(errors), _mean(plain), "public threads, fitted")


if __name__ == "__main__":
    sys.exit(main())
