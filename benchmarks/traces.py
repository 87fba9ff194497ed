#!/usr/bin/env python
"""Operators of profiler traces beside tclint's predictions, and how much of each trace is understood.

    python benchmarks/traces.py TRACE... [--gpu FILE=GPU]... [--labels] [--markdown] [-v]

Prints per trace: seconds and memory to read it, the share of the kernel time that no operator launched, the
share of unknown kernels, and for operators that tclint prices, whether "runs on Tensor Cores" is predicted
right (by time) and the errors of predicted times by kind. `--labels` judges kernel_names.toml on the names of
kernel_labels.csv, the third that was kept apart from writing it for itself. `-v` lists every operator.

A GPU whose name tclint does not know needs --gpu (a part of the file's name, and the GPU's id).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tclint.config.settings import Precision
from tclint.core.errors import UsageError
from tclint.cost.gpu import Gpu, load_gpu
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Work
from tclint.profile.kernel_names import MATRIX_KINDS, kernel_name
from tclint.profile.predicted import PricedOperator, priced_operators
from tclint.profile.profile import RankProfile, read_profile
from tclint.profile.trace import Operator
from tclint.profile.works import work_of

LABELS = Path(__file__).with_name("kernel_labels.csv")
LEAST_US = 8.0
"""Shorter kernels are within the resolution of older traces, which is a microsecond."""
SHORT: dict[str, Precision] = {"float16": "fp16", "bfloat16": "bf16"}

Row = Mapping[str, str]
_KINDS = {Gemm: "product", Convolution: "convolution", Attention: "attention"}


def kind_of(row: PricedOperator) -> str:
    return _KINDS.get(type(row.work), "memory-bound")


def precision_of(row: Row, work: Work) -> Precision:
    """The switches that a row of a table was recorded with."""
    return SHORT.get(work.dtype) or ("tf32" if row["tf32"] == "tf32" else "fp32")


def priced_rows(rows: Sequence[Row]) -> list[tuple[Row, Work]]:
    """Rows of a table of operators (op, dims, types, strides, concrete, kernels) with their works, where
    tclint can price them."""
    found = []
    for row in rows:
        names = row["kernels"].split(" | ")
        work = work_of(_operator(row), names)
        if work is None or (isinstance(work, Gemm) and "elementwise" in row["kernels"]):
            continue
        found.append((row, work))
    return found


def _operator(row: Row) -> Operator:
    def values(name: str) -> tuple[Any, ...]:
        return _frozen(json.loads(row.get(name) or "null") or [])

    fields = {"dims": "dims", "dtypes": "types", "strides": "strides", "concrete": "concrete"}
    return Operator(row["op"], 0.0, 0.0, **{field: values(column) for field, column in fields.items()})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class Judged:
    """One trace against predictions."""

    profile: RankProfile
    gpu: Gpu | None
    seconds: float
    rows: tuple[PricedOperator, ...]
    """Empty where the GPU is unknown."""

    @property
    def outside_percent(self) -> float:
        """The share of the kernel time that was launched in the window and is linked to no operator."""
        summary = self.profile.summary
        whole_us = summary.kernel_time_us + summary.communication_us
        return 100 * (summary.not_linked_us - summary.before_window_us) / whole_us

    @property
    def unknown_percent(self) -> float:
        summary = self.profile.summary
        unknown_us = sum(share.time_us for share in summary.unknown_names.values())
        return 100 * unknown_us / (summary.kernel_time_us + summary.communication_us)

    def right_percent(self, by_time: bool) -> float:
        """Products and convolutions of which it is predicted right whether they use Tensor Cores."""
        products = [row for row in self.rows if isinstance(row.work, Gemm | Convolution)]
        weights = [row.time_us * row.calls if by_time else 1.0 for row in products]
        right = sum(
            weight
            for row, weight in zip(products, weights, strict=True)
            if row.on_tensor_cores == row.price.uses_tensor_cores
        )
        return 100 * right / sum(weights) if products else math.nan

    def errors(self, kind: str) -> list[float]:
        """Errors of predicted times, in percent, for operators of LEAST_US and more."""
        return [row.error_percent for row in self.rows if kind_of(row) == kind and row.time_us >= LEAST_US]

    def rates(self) -> tuple[float, float]:
        """Percent of the time of products and convolutions whose rate of arithmetic contradicts a name that
        says 'no Tensor Cores', and of the time called on them, whose rate CUDA cores cannot reach."""
        assert self.gpu is not None
        wrong_us = proven_us = on_us = whole_us = 0.0
        for row in self.rows:
            if not isinstance(row.work, Gemm | Convolution):
                continue
            cuda_cores = self.gpu.peak_tflops["fp32" if row.work.dtype == "float32" else "fp16_cuda"]
            is_faster = row.teraflops_per_s > cuda_cores
            time_us = row.time_us * row.calls
            whole_us += time_us
            on_us += time_us * row.on_tensor_cores
            proven_us += time_us * (row.on_tensor_cores and is_faster)
            wrong_us += time_us * (not row.on_tensor_cores and is_faster)
        return 100 * wrong_us / max(whole_us, 1e-9), 100 * proven_us / on_us if on_us else math.nan


def report(judged: Judged, verbose: bool) -> None:
    trace, summary = judged.profile.trace, judged.profile.summary
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{Path(trace.path).name}: {summary.gpu}")
    print(
        f"  {len(trace.kernels)} activities of {trace.event_count} events, read in {judged.seconds:.2f} s, "
        f"at most {memory_mib:.0f} MiB so far"
    )
    print(
        f"  not linked {summary.not_linked_percent:.2f} % of the kernel time ({judged.outside_percent:.2f} % "
        f"without what was launched before the window); unknown use of Tensor Cores "
        f"{judged.unknown_percent:.2f} %; on them {summary.tensor_core_percent:.1f} %"
    )
    rows = judged.rows
    if not rows:
        print("  not compared with predictions: --gpu says which GPU this is")
        return
    wrong, proven = judged.rates()
    print(
        f"  Tensor Cores or not predicted right {judged.right_percent(False):.1f} % by count, "
        f"{judged.right_percent(True):.1f} % by time; rates contradict names for {wrong:.2f} % of that time, "
        f"and prove {proven:.0f} % of what is called on Tensor Cores"
    )
    covered_us = sum(row.time_us * row.calls for row in rows)
    predicted_us = sum(row.price.time_us * row.calls for row in rows)
    print(
        f"  priced {100 * covered_us / max(summary.kernel_time_us, 1e-9):.0f} % of the kernel time: measured "
        f"{covered_us / 1e3:.2f} ms, predicted {predicted_us / 1e3:.2f} ms"
    )
    for kind in dict.fromkeys(kind_of(row) for row in rows):
        errors = judged.errors(kind)
        if errors:
            print(f"    {kind:14} {_figures(errors)}")
    if verbose:
        for row in sorted(rows, key=lambda row: -row.time_us * row.calls):
            wrong_use = "" if row.on_tensor_cores == row.price.uses_tensor_cores else ", Tensor Cores wrong"
            print(
                f"    {row.calls} x {row.operator.name} {row.operator.dims[:3]} {row.time_us:.1f} us, "
                f"predicted {row.price.time_us:.1f}{wrong_use}"
            )


def _figures(errors: Sequence[float]) -> str:
    absolute = sorted(abs(error) for error in errors)
    mean, bias = sum(absolute) / len(errors), sum(errors) / len(errors)
    median = absolute[len(errors) // 2]
    return f"n {len(errors):3} mean {mean:6.1f} median {median:6.1f} bias {bias:6.1f}"


def markdown(judged: Iterable[Judged]) -> Iterator[str]:
    """The rows of the table in docs/how-to/profile.md."""
    yield (
        "| trace | GPU | kernels | kernel time | not linked | unknown | on Tensor Cores | predicted right "
        "| priced | predicted / measured | products | convolutions | memory-bound |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for one in judged:
        summary = one.profile.summary
        covered_us = sum(row.time_us * row.calls for row in one.rows)
        predicted_us = sum(row.price.time_us * row.calls for row in one.rows)
        cells = [
            Path(summary.path).name.split(".")[0],
            summary.gpu,
            str(sum(kernel.activity == "kernel" for kernel in one.profile.trace.kernels)),
            f"{summary.kernel_time_us / 1e3:.1f} ms",
            f"{one.outside_percent:.2f} %",
            f"{one.unknown_percent:.1f} %",
            f"{summary.tensor_core_percent:.1f} %",
            f"{one.right_percent(True):.1f} %" if one.rows else "",
            f"{100 * covered_us / summary.kernel_time_us:.0f} %" if one.rows else "",
            f"{predicted_us / covered_us:.2f}" if one.rows else "",
            *(_short(one.errors(kind)) for kind in ("product", "convolution", "memory-bound")),
        ]
        yield f"| {' | '.join(cells)} |"


def _short(errors: Sequence[float]) -> str:
    if not errors:
        return ""
    absolute = sorted(abs(error) for error in errors)
    return f"{sum(absolute) / len(errors):.0f} / {absolute[len(errors) // 2]:.0f} ({len(errors)})"


def judge_labels(profiles: Iterable[RankProfile]) -> None:
    """How much of the time of labelled names kernel_names.toml tells right, by part of the labels."""
    with LABELS.open(newline="", encoding="utf-8") as stream:
        labels = {row["name"]: row for row in csv.DictReader(stream)}
    length = max(map(len, labels))
    totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    names: dict[str, set[str]] = defaultdict(set)
    for kernel in (kernel for profile in profiles for kernel in profile.trace.kernels):
        label = labels.get(kernel.name[:length])
        if label is None or kernel.activity != "kernel":
            continue
        found = kernel_name(kernel.name)
        names[label["part"]].add(label["name"])
        for kinds in ("all", "matrix work") if label["kind"] in MATRIX_KINDS else ("all",):
            total = totals[label["part"], kinds]
            total[0] += kernel.time_us
            total[1] += kernel.time_us * (found.tensor_cores == label["tensor_cores"])
            total[2] += kernel.time_us * (found.kind == label["kind"])
    print("names labelled by hand, right by time:")
    for (part, kinds), (whole, use, kind) in sorted(totals.items()):
        print(
            f"  {part:4} ({len(names[part])} names), {kinds}: Tensor Cores {100 * use / whole:.2f} %, kind "
            f"{100 * kind / whole:.2f} % of {whole / 1e3:.0f} ms"
        )


def gpu_of(profile: RankProfile, given: Mapping[str, str]) -> Gpu | None:
    for part, name in given.items():
        if part in Path(profile.trace.path).name:
            return load_gpu(name)
    try:
        return load_gpu(profile.summary.gpu)
    except UsageError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--gpu", action="append", default=[], metavar="FILE=GPU")
    parser.add_argument("--labels", action="store_true", help="judge the table of names on the labels")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/how-to/profile.md")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every operator")
    arguments = parser.parse_args()
    given = dict(entry.split("=", 1) for entry in arguments.gpu)
    judged = []
    for path in arguments.traces:
        began = time.perf_counter()
        for profile in read_profile(path):
            gpu = gpu_of(profile, given)
            seconds = time.perf_counter() - began
            judged.append(Judged(profile, gpu, seconds, _compared(profile, gpu)))
            if not arguments.markdown:
                report(judged[-1], arguments.verbose)
    if arguments.markdown:
        print("\n".join(markdown(judged)))
    if arguments.labels:
        judge_labels(one.profile for one in judged)
    return 0


def _compared(profile: RankProfile, gpu: Gpu | None) -> tuple[PricedOperator, ...]:
    if gpu is None:
        return ()
    return tuple(priced_operators(profile.trace, gpu))


if __name__ == "__main__":
    sys.exit(main())
