#!/usr/bin/env python
"""Operators of profiler traces beside tclint's predictions, and how much of each trace is understood.

    python benchmarks/traces.py TRACE... [--gpu FILE=GPU]... [--labels] [-v]

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
from tclint.cost.kernels.pricing import price_works
from tclint.graph.lowering.work import Convolution, Gemm, Work
from tclint.profile.kernel_names import MATRIX_KINDS, kernel_name
from tclint.profile.profile import RankProfile, read_profile
from tclint.profile.tensor_cores import Judge
from tclint.profile.trace import Kernel, Operator
from tclint.profile.works import work_of

LABELS = Path(__file__).with_name("kernel_labels.csv")
LEAST_US = 8.0
"""Shorter kernels are within the resolution of older traces, which is a microsecond."""
SHORT: dict[str, Precision] = {"float16": "fp16", "bfloat16": "bf16"}

Row = Mapping[str, str]


@dataclass(frozen=True)
class Compared:
    """One operator of a trace, all its calls of the same sizes."""

    operator: Operator
    work: Work
    time_us: float
    """Mean of its calls, all kernels of each."""
    calls: int
    on_tensor_cores: bool
    """By the names of its kernels."""
    predicted_us: float
    predicted_on_tensor_cores: bool

    @property
    def error_percent(self) -> float:
        return 100.0 * (self.predicted_us / self.time_us - 1.0)


def compared(kernels: Sequence[Kernel], gpu: Gpu, tf32_products: bool) -> Iterator[Compared]:
    """The operators that tclint prices; products that were copied first are left out, as their copies are
    operators of their own."""
    by_call: dict[int, tuple[Operator, list[Kernel]]] = {}
    for kernel in kernels:
        if kernel.operator is not None and kernel.activity == "kernel":
            by_call.setdefault(id(kernel.operator), (kernel.operator, []))[1].append(kernel)
    groups: dict[tuple[Any, ...], list[tuple[Operator, list[Kernel]]]] = defaultdict(list)
    for operator, own in by_call.values():
        names = tuple(kernel.name for kernel in own)
        groups[operator.name, operator.dims, operator.dtypes, operator.strides, names].append((operator, own))
    for key, calls in groups.items():
        operator, names = calls[0][0], key[-1]
        work = work_of(operator, names)
        if work is None or (isinstance(work, Gemm) and any("elementwise" in name for name in names)):
            continue
        precision = SHORT.get(work.dtype) or ("tf32" if tf32_products else "tf32-cudnn")
        price = price_works([work], gpu, precision)[0]
        if price is None:
            continue
        yield Compared(
            operator,
            work,
            sum(kernel.time_us for _, own in calls for kernel in own) / len(calls),
            len(calls),
            any(kernel_name(name).tensor_cores == "yes" for name in names),
            price.time_us,
            price.uses_tensor_cores,
        )


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


def report(profile: RankProfile, gpu: Gpu | None, seconds: float, verbose: bool) -> None:
    trace, summary = profile.trace, profile.summary
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    whole_us = summary.kernel_time_us + summary.communication_us
    outside_us = summary.not_linked_us - summary.before_window_us
    unknown_us = sum(share.time_us for share in summary.unknown_names.values())
    print(f"{Path(trace.path).name}: {summary.gpu}")
    print(
        f"  {len(trace.kernels)} activities of {trace.event_count} events, read in {seconds:.2f} s, at most "
        f"{memory_mib:.0f} MiB so far"
    )
    print(
        f"  not linked {100 * summary.not_linked_us / whole_us:.2f} % of the kernel time "
        f"({100 * outside_us / whole_us:.2f} % without what was launched before the window); unknown use of "
        f"Tensor Cores {100 * unknown_us / whole_us:.2f} %; on them {summary.tensor_core_percent:.1f} %"
    )
    if gpu is None:
        print("  not compared with predictions: --gpu says which GPU this is")
        return
    judge = Judge(trace.device, trace.kernels)
    rows = list(compared(trace.kernels, gpu, "product" in judge.tf32_kinds))
    products = [row for row in rows if isinstance(row.work, Gemm | Convolution)]
    for title, weights in (
        ("by count", [1.0] * len(products)),
        ("by time", [row.time_us * row.calls for row in products]),
    ):
        right = sum(
            weight
            for row, weight in zip(products, weights, strict=True)
            if row.on_tensor_cores == row.predicted_on_tensor_cores
        )
        if products:
            print(f"  Tensor Cores or not predicted right {title}: {100 * right / sum(weights):.1f} %")
    covered_us = sum(row.time_us * row.calls for row in rows)
    predicted_us = sum(row.predicted_us * row.calls for row in rows)
    print(
        f"  priced {100 * covered_us / max(summary.kernel_time_us, 1e-9):.0f} % of the kernel time: measured "
        f"{covered_us / 1e3:.2f} ms, predicted {predicted_us / 1e3:.2f} ms"
    )
    kinds: dict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        if row.time_us >= LEAST_US:
            kinds[f"{row.operator.name} {row.work.dtype}"].append(row)
    for kind, members in sorted(kinds.items()):
        errors = [row.error_percent for row in members]
        print(f"    {kind:42} {_figures(errors)}")
    if verbose:
        for row in sorted(rows, key=lambda row: -row.time_us * row.calls):
            wrong = "" if row.on_tensor_cores == row.predicted_on_tensor_cores else " TC wrong"
            print(
                f"    {row.calls} x {row.operator.name} {row.operator.dims[:3]} {row.time_us:.1f} us, "
                f"predicted {row.predicted_us:.1f}{wrong}"
            )


def _figures(errors: Sequence[float]) -> str:
    absolute = sorted(abs(error) for error in errors)
    mean, bias = sum(absolute) / len(errors), sum(errors) / len(errors)
    median = absolute[len(errors) // 2]
    return f"n {len(errors):3} mean {mean:6.1f} median {median:6.1f} bias {bias:6.1f}"


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
    parser.add_argument("-v", "--verbose", action="store_true", help="list every operator")
    arguments = parser.parse_args()
    given = dict(entry.split("=", 1) for entry in arguments.gpu)
    profiles = []
    for path in arguments.traces:
        began = time.perf_counter()
        for profile in read_profile(path):
            report(profile, gpu_of(profile, given), time.perf_counter() - began, arguments.verbose)
            profiles.append(profile)
    if arguments.labels:
        judge_labels(profiles)
    return 0


if __name__ == "__main__":
    sys.exit(main())
