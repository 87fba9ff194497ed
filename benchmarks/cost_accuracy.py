"""How wrong the cost model is on measured kernel times, beside two rooflines on the same rows.

    python benchmarks/cost_accuracy.py --data DIR [--traces DIR] [--format json] [--held-out]

One line per file, GPU, dtype and kind. Errors are 100 * (predicted / measured - 1) percent: `mean` and
`median` of their absolute values, `bias` their mean. `stated` is the uncertainty that tclint states for these
rows, on average, and `within_stated` the share of rows whose error is at most what is stated for them: about
60 % where it is honest, because it is a mean error. `repeats` is the error of an oracle that knows the median
of all rows of equal sizes: nothing that is told the sizes alone can do better. The plain roofline is
max(FLOPs / datasheet rate, bytes / datasheet bandwidth); the calibrated one has a start time and two
efficiencies fitted to the very rows it is judged on. All rows of a file count; with --held-out only the
fifth of the shapes that calibrate.py never fits (a hash of (N, K)). Campaigns timed from the host see kernels
through their clock (harnesses.toml), which is applied to every prediction, the plain roofline's included;
what tclint predicts is the kernel's own time. What cannot be priced is a line that says so.

Whole models (`--traces DIR`) are timm's, traced by name into that folder, which takes a while once; of these,
--held-out keeps the families of models that no constant was chosen by.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measurements import (
    DTYPES,
    FloatArray,
    Group,
    Harness,
    Unhandled,
    WholeModels,
    as_unmeasured,
    harness_of,
    oracle_errors,
    read_folder,
    timed_alone,
)

from tclint.core.errors import UsageError
from tclint.cost.gpu import Gpu, load_gpu
from tclint.cost.kernels.pricing import price_works
from tclint.cost.math_units import tf32_switches, unit_class
from tclint.graph.lowering.work import Attention, Convolution, Traffic

CLOSE_PERCENT = 10.0


@dataclass(frozen=True)
class Line:
    """One row of the table; figures are percentages, None where there is nothing to price."""

    file: str
    gpu: str
    dtype: str
    kind: str
    n: int
    mean: float | None = None
    median: float | None = None
    bias: float | None = None
    within_10_percent: float | None = None
    roofline_mean: float | None = None
    roofline_median: float | None = None
    calibrated_roofline_mean: float | None = None
    calibrated_roofline_median: float | None = None
    stated: float | None = None
    within_stated: float | None = None
    repeats: float | None = None
    repeats_n: int = 0
    """Rows whose sizes occur more than once."""
    calibrated: bool | None = None
    """Whether the constants are this GPU's own; None where nothing is priced."""
    harness: str = ""
    """What the campaign's clock does to a kernel's time; '' where nothing."""
    split: str = "all rows"
    note: str = ""


UNMEASURED = "as if this GPU had not been measured"


def judge(item: Group | Unhandled, *, held_out_only: bool, unmeasured: bool = False) -> Line:
    """The errors of one group, or the reason why there are none.

    Args:
        item: rows of one file, GPU, dtype and kind.
        held_out_only: only rows that no constant was fitted to.
        unmeasured: with the constants of other GPUs, as if this one had none.
    """
    if isinstance(item, Unhandled):
        return Line(item.file, item.gpu, item.dtype, item.kind, item.n, note=item.reason)
    chosen = item.held_out if held_out_only else np.ones(len(item), dtype=bool)
    split = "held out" if held_out_only else "all rows"
    works = [work for work, use in zip(item.works, chosen, strict=True) if use]
    measured = item.times_us[chosen]
    head = (item.file, item.gpu, item.dtype, item.kind, len(works))
    if not works:
        return Line(*head, split=split, note="no rows")
    try:
        gpu = load_gpu(item.gpu)
    except UsageError as error:
        return Line(*head, split=split, note=str(error))
    if unmeasured:
        gpu, split = as_unmeasured(gpu), UNMEASURED
    gpu = timed_alone(gpu)
    _, precision = DTYPES[item.dtype]
    prices = price_works(works, gpu, precision)
    if any(price is None for price in prices):
        return Line(*head, split=split, note=f"no formula for {item.dtype} on {gpu.id}")
    harness = harness_of(item)
    predicted = harness.measured_us(np.array([price.time_us for price in prices if price]))
    math_us, memory_us = _roofline_parts(item, works, gpu)
    errors = 100 * (predicted / measured - 1)
    plain = 100 * np.abs(harness.measured_us(np.maximum(math_us, memory_us)) / measured - 1)
    fitted = 100 * np.abs(_calibrated_roofline(math_us, memory_us, measured) / measured - 1)
    absolute = np.abs(errors)
    stated = np.array([price.uncertainty_percent for price in prices if price])
    floor = oracle_errors(works, measured)
    return Line(
        *head,
        mean=_rounded(absolute.mean()),
        median=_rounded(np.median(absolute)),
        bias=_rounded(errors.mean()),
        within_10_percent=_rounded(100 * (absolute <= CLOSE_PERCENT).mean()),
        roofline_mean=_rounded(plain.mean()),
        roofline_median=_rounded(np.median(plain)),
        calibrated_roofline_mean=_rounded(fitted.mean()),
        calibrated_roofline_median=_rounded(np.median(fitted)),
        stated=_rounded(stated.mean()),
        within_stated=_rounded(100 * (absolute <= stated).mean()),
        repeats=_rounded(floor.mean()) if len(floor) else None,
        repeats_n=len(floor),
        calibrated=all(price.calibrated for price in prices if price),
        harness="" if harness == Harness() else f"max({harness.floor_us:g}, {harness.added_us:g} + t) us",
        split=split,
    )


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), 2)


def _roofline_parts(item: Group, works: Sequence[Any], gpu: Gpu) -> tuple[FloatArray, FloatArray]:
    """Microseconds of math and of memory at datasheet rates."""
    torch_dtype, precision = DTYPES[item.dtype]
    tf32 = tf32_switches(precision)[1 if isinstance(works[0], Convolution) else 0]
    unit = unit_class(gpu, torch_dtype, tf32=tf32)
    prices = [price for price in price_works(works, gpu, precision) if price]
    flops = np.array([price.flops for price in prices], dtype=np.float64)
    if isinstance(works[0], Attention):
        flops *= np.array([0.5 if work.is_causal else 1.0 for work in works])
    moved = np.array([price.bytes_read + price.bytes_written for price in prices], dtype=np.float64)
    peak = gpu.peak_tflops["fp32" if unit is None or isinstance(works[0], Traffic) else unit.name]
    return flops / (1e6 * peak), moved / (1e3 * gpu.dram_gb_per_s)


def _calibrated_roofline(math_us: FloatArray, memory_us: FloatArray, measured: FloatArray) -> FloatArray:
    """start + max(math / a, memory / b) with the three constants that suit these rows best."""
    from scipy.optimize import least_squares

    def times(x: FloatArray) -> FloatArray:
        start, math_factor, memory_factor = np.exp(x)
        result: FloatArray = start + np.maximum(math_us * math_factor, memory_us * memory_factor)
        return result

    found = least_squares(
        lambda x: np.log(times(x) / measured),
        np.log([max(float(measured.min()) / 2, 1e-3), 1.3, 1.3]),
        loss="soft_l1",
        f_scale=0.1,
    )
    return times(found.x)


COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("file", "file", 26),
    ("gpu", "GPU", 16),
    ("dtype", "dtype", 5),
    ("kind", "kind", 16),
    ("n", "n", 6),
    ("mean", "mean", 6),
    ("median", "median", 6),
    ("bias", "bias", 6),
    ("within_10_percent", "<=10%", 6),
    ("stated", "stated", 6),
    ("within_stated", "within", 6),
    ("repeats", "repeats", 7),
    ("roofline_mean", "roof", 6),
    ("roofline_median", "median", 6),
    ("calibrated_roofline_mean", "cal.roof", 8),
    ("calibrated_roofline_median", "median", 6),
)


def as_table(lines: Sequence[Line]) -> str:
    """Text for people; figures in percent."""
    text = [
        "  ".join(
            title.ljust(width) if i < 4 else title.rjust(width) for i, (_, title, width) in enumerate(COLUMNS)
        )
    ]
    for line in lines:
        cells = []
        for i, (name, _, width) in enumerate(COLUMNS):
            value = getattr(line, name)
            shown = "" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
            cells.append(shown.ljust(width) if i < 4 else shown.rjust(width))
        remarks = [line.note] if line.note else []
        if line.calibrated is False:
            remarks.append("constants of another GPU or precision")
        if line.harness:
            remarks.append(f"clock sees {line.harness}")
        text.append("  ".join(cells) + ("  " + "; ".join(remarks) if remarks else ""))
    return "\n".join(row.rstrip() for row in text)


def as_json(lines: Sequence[Line]) -> str:
    """`{"rows": [...]}` with the table's figures as numbers."""
    return json.dumps({"rows": [line.__dict__ for line in lines]}, indent=1)


def _lines(folder: Path, traces: Path | None, *, held_out_only: bool) -> Iterator[Line]:
    for item in read_folder(folder):
        if not isinstance(item, WholeModels):
            yield judge(item, held_out_only=held_out_only)
            continue
        from model_accuracy import model_lines

        for values in model_lines(folder / item.file, traces, held_out_only=held_out_only):
            yield Line(**values)


def unmeasured_lines(folder: Path) -> list[Line]:
    """Every kind of kernel, priced as on a GPU that only its datasheet row is known of."""
    return [
        judge(item, held_out_only=False, unmeasured=True)
        for item in read_folder(folder)
        if isinstance(item, Group)
    ]


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of CSV files with measured times")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--held-out", action="store_true", help="only shapes that calibration never fits")
    parser.add_argument(
        "--traces",
        type=Path,
        help="folder that keeps traced timm models; without it whole models are left out",
    )
    parser.add_argument(
        "--as-unmeasured",
        action="store_true",
        help="kernels alone, with each GPU's own constants taken away: how wrong a new GPU would be",
    )
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="write the table as a page as well")
    arguments = parser.parse_args(given)
    try:
        if arguments.as_unmeasured:
            print((as_json if arguments.format == "json" else as_table)(unmeasured_lines(arguments.data)))
            return 0
        lines = list(_lines(arguments.data, arguments.traces, held_out_only=arguments.held_out))
    except FileNotFoundError as error:
        print(f"cost_accuracy: {error}; --data names the folder with the CSV files", file=sys.stderr)
        return 2
    if arguments.write:
        from accuracy_page import page, summary_of, with_summary

        known = arguments.write.read_text(encoding="utf-8") if arguments.write.exists() else ""
        unmeasured = [line.__dict__ for line in unmeasured_lines(arguments.data)]
        written = with_summary(page([line.__dict__ for line in lines], unmeasured), summary_of(known))
        arguments.write.write_text(written, encoding="utf-8")
    print(as_json(lines) if arguments.format == "json" else as_table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
