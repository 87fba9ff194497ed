"""How wrong predicted steps of whole models are: rows of the accuracy table from models' throughput.

Each row is timm's model of that name, traced at the row's batch and image size and priced in the row's
precision and memory format. Families of models, not rows, are held out (timm_models.family).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from measurements import FloatArray, oracle_errors
from timm_models import PRECISIONS, Counts, ModelRow, Traces, lowered, read_rows

from tclint.core.errors import UsageError
from tclint.cost.gpu import Gpu, load_gpu
from tclint.cost.kernels.pricing import price_works
from tclint.cost.math_units import tf32_switches, unit_class
from tclint.graph.lowering.work import Convolution, Traffic, Work

NOTICEABLE_GAIN = 0.03
"""Gains of a memory format below this are within the noise of the measurements."""


def model_lines(path: Path, traces_folder: Path | None, *, held_out_only: bool) -> list[dict[str, Any]]:
    """One row of the table per GPU, precision, phase and layout, and one per gain of channels_last."""
    rows, unreadable = read_rows(path)
    groups: dict[tuple[str, str, str, str], list[ModelRow]] = defaultdict(list)
    for row in rows:
        groups[row.gpu, row.amp, row.phase, row.layout].append(row)
    if traces_folder is None or (find_spec("timm") is None and not traces_folder.is_dir()):
        why = "--traces DIR and timm are needed to trace the models"
        return [_head(path, key, len(found), why) for key, found in groups.items()]
    traces = Traces(traces_folder)
    if find_spec("timm") is not None:
        traces.trace(rows)
    works, priced, counts = lowered(rows, traces)
    lines = []
    predicted: dict[int, float] = {}
    for key, found in groups.items():
        at = [i for i, row in enumerate(priced) if (row.gpu, row.amp, row.phase, row.layout) == key]
        at = [i for i in at if priced[i].held_out or not held_out_only]
        if key[1] not in PRECISIONS:
            lines.append(_head(path, key, len(found), f"unknown precision {key[1]!r}"))
            continue
        try:
            gpu = load_gpu(key[0])
        except UsageError as error:
            lines.append(_head(path, key, len(found), str(error)))
            continue
        untraced = sum(not traces.has(row) for row in found)
        note = f"{untraced} rows of models that this timm does not have" if untraced else ""
        line = _judge(gpu, key[1], works, [priced[i] for i in at], [counts[i] for i in at])
        predicted.update(zip(at, line.pop("times"), strict=True))
        split = "held-out families" if held_out_only else "all rows"
        lines.append({**_head(path, key, len(at), note), **line, "split": split})
    if unreadable:
        lines.append(_head(path, ("", "", "", ""), unreadable, "rows without batch or throughput"))
    return lines + _gain_lines(path, priced, predicted, held_out_only=held_out_only)


def _head(path: Path, key: tuple[str, str, str, str], n: int, note: str) -> dict[str, Any]:
    gpu, amp, phase, layout = key
    return {
        "file": path.name,
        "gpu": gpu,
        "dtype": amp,
        "kind": f"model {phase} {layout}".strip(),
        "n": n,
        "note": note,
    }


def _judge(
    gpu: Gpu, amp: str, works: Sequence[Work], rows: Sequence[ModelRow], counts: Sequence[Counts]
) -> dict[str, Any]:
    precision = PRECISIONS[amp]
    used = sorted({number for own in counts for number in own})
    prices = dict(zip(used, price_works([works[i] for i in used], gpu, precision), strict=True))
    measured = np.array([row.step_us for row in rows])
    zero = np.zeros(len(rows))
    predicted, math_us, memory_us, launches = zero.copy(), zero.copy(), zero.copy(), zero.copy()
    doubt_us = zero.copy()
    for i, own in enumerate(counts):
        for number, times in own.items():
            price, work = prices[number], works[number]
            if price is None:
                continue
            predicted[i] += times * price.time_us
            doubt_us[i] += times * price.time_us * price.uncertainty_percent
            ideal_math, ideal_memory = _roofline_parts(work, price, gpu, precision)
            launches[i] += times
            if ideal_math > ideal_memory:
                math_us[i] += times * ideal_math
            else:
                memory_us[i] += times * ideal_memory
    errors = 100 * (predicted / measured - 1)
    stated = doubt_us / predicted
    floor = oracle_errors([(row.model, row.image, row.batch) for row in rows], measured)
    plain = 100 * np.abs((math_us + memory_us) / measured - 1)
    fitted = 100 * np.abs(_calibrated(np.stack([math_us, memory_us, launches], 1), measured) / measured - 1)
    return {
        "mean": _rounded(np.abs(errors).mean()),
        "median": _rounded(np.median(np.abs(errors))),
        "bias": _rounded(errors.mean()),
        "within_10_percent": _rounded(100 * (np.abs(errors) <= 10).mean()),
        "roofline_mean": _rounded(plain.mean()),
        "roofline_median": _rounded(np.median(plain)),
        "calibrated_roofline_mean": _rounded(fitted.mean()),
        "calibrated_roofline_median": _rounded(np.median(fitted)),
        "stated": _rounded(stated.mean()),
        "within_stated": _rounded(100 * (np.abs(errors) <= stated).mean()),
        "repeats": _rounded(floor.mean()) if len(floor) else None,
        "repeats_n": len(floor),
        "calibrated": gpu.calibrated(precision),
        "times": predicted,
    }


def _roofline_parts(work: Work, price: Any, gpu: Gpu, precision: Any) -> tuple[float, float]:
    moved = price.bytes_read + price.bytes_written
    memory_us = moved / (1e3 * gpu.dram_gb_per_s)
    if isinstance(work, Traffic):
        return 0.0, memory_us
    tf32 = tf32_switches(precision)[1 if isinstance(work, Convolution) else 0]
    unit = unit_class(gpu, work.dtype, tf32=tf32)
    return (0.0 if unit is None else price.flops / (1e6 * gpu.peak_tflops[unit.name])), memory_us


def _calibrated(parts: FloatArray, measured: FloatArray) -> FloatArray:
    """math / a + memory / b + launches * t with the three constants that suit these rows best."""
    from scipy.optimize import nnls

    weights, _ = nnls(parts / measured[:, None], np.ones(len(measured)))
    result: FloatArray = parts @ weights
    return result


def _gain_lines(
    path: Path, rows: Sequence[ModelRow], predicted: dict[int, float], *, held_out_only: bool
) -> list[dict[str, Any]]:
    """How well the gain of NHWC over NCHW is predicted, in percentage points; runs of one model averaged."""
    pairs: dict[tuple[str, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in predicted:
        row = rows[i]
        pairs[row.gpu, row.amp, row.phase, row.key][row.layout].append(i)
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for (gpu, amp, phase, _), layouts in pairs.items():
        if set(layouts) == {"nchw", "nhwc"}:
            nchw, nhwc = layouts["nchw"], layouts["nhwc"]
            measured = np.mean([rows[i].step_us for i in nchw]) / np.mean([rows[i].step_us for i in nhwc])
            expected = np.mean([predicted[i] for i in nchw]) / np.mean([predicted[i] for i in nhwc])
            found[gpu, amp, phase].append((float(measured), float(expected)))
    lines = []
    for (gpu, amp, phase), gains in found.items():
        table = np.array(gains)
        off = 100 * (table[:, 1] - table[:, 0])
        clear = np.abs(table[:, 0] - 1) > NOTICEABLE_GAIN
        right = ((table[:, 0] > 1) == (table[:, 1] > 1))[clear]
        note = f"points; sign right in {100 * right.mean():.0f} % of {clear.sum()} gains above 3 %"
        lines.append(
            {
                **_head(path, (gpu, amp, "", ""), len(table), note),
                "kind": f"channels_last {phase}",
                "mean": _rounded(np.abs(off).mean()),
                "median": _rounded(np.median(np.abs(off))),
                "bias": _rounded(off.mean()),
                "within_10_percent": _rounded(100 * (np.abs(off) <= 10).mean()),
                "split": "held-out families" if held_out_only else "all rows",
            }
        )
    return lines


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), 2)
