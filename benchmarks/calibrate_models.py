"""Fit what only whole models show: memory-bound operators and convolutions from models' throughput.

    python benchmarks/calibrate_models.py --data DIR --traces DIR [--write]

No published data times single convolutions or norms on recent GPUs. Whole models contain them in many
mixtures, so their constants follow from many models at once: the constants below are chosen so that the sums
of the kernels' times agree with the measured steps. A third of the families of models, chosen by a hash of
the family's name, is held out; the errors written beside the constants are those of whole steps of these.
What whole models cannot tell apart keeps the value that kernel timings gave. Needs scipy, and timm for
models that are not traced yet.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from measurements import FloatArray, as_unmeasured
from timm_models import ModelRow, Traces, lowered, read_rows

import tclint.cost.gpu
from tclint.cost.gpu import Gpu, load_gpu
from tclint.cost.kernels.assess import traffic_times_us
from tclint.cost.kernels.attention import attention_times
from tclint.cost.kernels.constants import (
    AttentionConstants,
    ConvolutionConstants,
    GemmConstants,
    TrafficConstants,
)
from tclint.cost.kernels.convolution import convolution_times
from tclint.cost.kernels.matmul import gemm_times
from tclint.cost.kernels.pricing import gemm_shapes, price_works
from tclint.cost.math_units import unit_class
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, Work

ROBUST_SCALE = 0.08
PRIOR_SIGMA = 0.5
PRIOR_WEIGHT = 0.4
HALF = ("float16", "bfloat16")

TRAFFIC_KEYS: dict[str, tuple[str, ...]] = {
    "elementwise": (),
    "batch_norm": ("batch_norm", "batch_norm_backward", "native_batch_norm"),
    "group_norm": ("group_norm", "group_norm_backward", "native_group_norm"),
    "norm": (),
    "softmax": (),
    "reduction": (),
    "copy": (),
    "_to_copy": ("_to_copy",),
    "pool": (),
}
"""Calibration keys, and the operations that each stands for; those without are classes."""

START: dict[str, tuple[float, float, float]] = {
    # 1.12 is 1.9 GHz, which the cards of this datasheet rate hold.
    "sustained": (1.0, 0.8, 1.12),
    # Rates of fused attention relative to the constants of the GPU that stands in.
    "attention.rate": (1.0, 0.6, 1.8),
    **{f"{key}.dram_efficiency": (0.85, 0.2, 0.95) for key in TRAFFIC_KEYS},
    "conv.forward_factor": (0.98, 0.5, 1.5),
    "conv.dgrad_factor": (1.1, 0.5, 2.0),
    "conv.wgrad_factor": (1.1, 0.5, 2.5),
    "conv.transform_bandwidth_share": (0.8, 0.3, 3.0),
    "conv.pointwise_transform_share": (0.5, 0.05, 1.0),
    "conv.grouped_factor": (1.0, 0.3, 4.0),
    "conv.grouped_backward_nhwc_factor": (1.0, 0.2, 8.0),
    "conv.grouped_backward_nchw_factor": (1.0, 0.5, 8.0),
    "conv.grouped_fallback_factor": (1.5, 0.8, 4.0),
    "conv.grouped_direct_share": (0.06, 0.01, 0.3),
    "conv.depthwise_nhwc_share": (0.7, 0.2, 0.95),
    "conv.depthwise_nchw_share": (0.7, 0.2, 0.95),
    "conv.depthwise_math_share": (0.1, 0.03, 0.5),
    "conv.depthwise_general_share": (0.1, 0.01, 0.3),
    "conv.depthwise_backward_nhwc_factor": (1.5, 0.7, 6.0),
    "conv.depthwise_backward_nchw_factor": (2.0, 0.7, 6.0),
    "conv.depthwise_general_backward_factor": (1.5, 0.7, 6.0),
}
"""(start, least, most) of every constant that is fitted; efficiencies stay below what a copy reaches."""

TAKEN_OVER: dict[str, float] = {
    "halo_reread": 0.4388,
    "launch_us": 5.431,
    "prologue_ratio": 0.04931,
    "split_k_ratio": 2.11,
    "sm_bandwidth_factor": 0.4367,
    "tiny_c_factor": 1.3,
}
"""Constants of convolutions that whole models do not show: the V100's, and an assumed tiny_c_factor."""
TRAFFIC_TAKEN_OVER: dict[str, float] = {
    name: value for name, value in asdict(TrafficConstants()).items() if name != "dram_efficiency"
}

Constants = Mapping[str, float]


class Rows:
    """Measured steps as counts of works."""

    def __init__(self, works: list[Work], rows: list[ModelRow], counts: list[dict[int, int]]) -> None:
        from scipy.sparse import csr_matrix

        self.works = works
        self.rows = rows
        self.held_out = np.array([row.held_out for row in rows])
        steps = np.array([row.step_us for row in rows])
        at = [(i, work, number) for i, found in enumerate(counts) for work, number in found.items()]
        row_of, work_of, number = (np.array(column) for column in zip(*at, strict=True))
        self.matrix = csr_matrix((number / steps[row_of], (row_of, work_of)), (len(rows), len(works)))
        families = Counter(row.family for row in rows)
        # A family of fifty models is not fifty times the evidence of one.
        self.weights = np.array([families[row.family] ** -0.25 for row in rows])


class Times:
    """Kernel times of all works under given constants; only what a changed constant touches is computed."""

    def __init__(self, gpu: Gpu, works: Sequence[Work]) -> None:
        self.gpu = gpu
        self.gemm = GemmConstants(**gpu.calibrations["gemm", "half"].constants)
        self.attention = AttentionConstants(**gpu.calibrations["attention", "half"].constants)
        self.fixed_us = np.array(
            [price.time_us if price else 0.0 for price in price_works(works, gpu, "fp16")]
        )
        self.parts: dict[str, list[int]] = defaultdict(list)
        for index, work in enumerate(works):
            self.parts[_part(work)].append(index)
        self.works = works
        self.kept: dict[str, tuple[tuple[float, ...], FloatArray]] = {}

    def us(self, x: Constants) -> FloatArray:
        result = self.fixed_us.copy()
        for part, indices in self.parts.items():
            names = [name for name in x if _touches(name, part)]
            if not names:
                continue
            key = tuple(x[name] for name in names)
            if part not in self.kept or self.kept[part][0] != key:
                self.kept[part] = (key, self._part_us(part, [self.works[i] for i in indices], x))
            result[indices] = self.kept[part][1]
        return result

    def _part_us(self, part: str, works: Sequence[Work], x: Constants) -> FloatArray:
        unit = unit_class(self.gpu, "float16", tf32=False)
        assert unit is not None
        gpu = replace(self.gpu, sustained={"half": x["sustained"]})
        if part == "gemm":
            products = [work for work in works if isinstance(work, Gemm)]
            repeats = np.array([work.repeats for work in products])
            times: FloatArray = gemm_times(gemm_shapes(products), gpu, unit, self.gemm).time_us * repeats
            return times
        if part == "attention":
            fused = [work for work in works if isinstance(work, Attention)]
            constants = faster_attention(self.attention, x["attention.rate"])
            return attention_times(fused, self.gpu, unit, constants).time_us
        if part == "conv":
            convolution = ConvolutionConstants(**TAKEN_OVER, **_named(x, "conv."))
            return convolution_times(
                [work for work in works if isinstance(work, Convolution)], gpu, unit, self.gemm, convolution
            ).time_us
        moved = [work for work in works if isinstance(work, Traffic)]
        table = TrafficConstants(dram_efficiency=x[f"{part}.dram_efficiency"], **TRAFFIC_TAKEN_OVER)
        return traffic_times_us(moved, gpu, table)


def faster_attention(constants: AttentionConstants, rate: float) -> AttentionConstants:
    """The constants with all rates of arithmetic multiplied, up to what the datasheet allows."""
    rates = {
        name: min(rate * value, 0.95)
        for name, value in asdict(constants).items()
        if name.startswith("math_efficiency")
    }
    return replace(constants, **rates)


def _named(x: Constants, prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in x.items() if name.startswith(prefix)}


def _touches(name: str, part: str) -> bool:
    if name == "sustained":
        return part in ("gemm", "conv")
    return name.split(".", maxsplit=1)[0] == part


def _part(work: Work) -> str:
    """Which constants a work is priced with; 'fixed' where none of these."""
    if isinstance(work, Traffic):
        for key, operations in TRAFFIC_KEYS.items():
            if work.operation in operations:
                return key
        # As pricing does: an operation's own constants, its class's, else those of elementwise kernels.
        return work.traffic_class if work.traffic_class in TRAFFIC_KEYS else "elementwise"
    if getattr(work, "dtype", "") not in HALF:
        return "fixed"
    if isinstance(work, Gemm):
        return "gemm"
    if isinstance(work, Attention):
        return "attention"
    return "conv" if isinstance(work, Convolution) else "fixed"


def fit(rows: Rows, times: Times, rounds: int) -> dict[str, float]:
    """The constants, from the families that are not held out.

    Where no row trains, what only training shows stays as it is.
    """
    from scipy.optimize import least_squares

    trains = any(row.phase == "train" for row in rows.rows)
    begun = {
        name: value if trains else (_present(times.gpu, name, value[0]), *value[1:])
        for name, value in START.items()
    }
    names = list(START)
    start, low, high = (np.log([begun[name][i] for name in names]) for i in range(3))
    chosen = ~rows.held_out
    matrix, weights = rows.matrix[np.flatnonzero(chosen)], np.sqrt(rows.weights[chosen])

    def residuals(x: FloatArray) -> FloatArray:
        predicted = matrix @ times.us(dict(zip(names, np.exp(x).tolist(), strict=True)))
        # Models that something else slows down several times over teach nothing about these constants.
        errors = np.tanh(np.log(predicted) / 0.6) * 0.6
        return np.concatenate([weights * errors, PRIOR_WEIGHT * (x - start) / PRIOR_SIGMA])

    # From the inside of the bounds, as the solver asks.
    begin = np.clip(start, low + 1e-6, high - 1e-6)
    found = least_squares(
        residuals,
        begin,
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        diff_step=1e-2,
        bounds=(low, high),
        max_nfev=rounds,
        verbose=0,
    )
    return dict(zip(names, np.exp(found.x).tolist(), strict=True))


def _present(gpu: Gpu, name: str, otherwise: float) -> float:
    """A constant of convolutions as another GPU's whole models gave it."""
    calibration = gpu.calibration("conv", "half")
    key = name.removeprefix("conv.")
    if calibration is None or key == name:
        return otherwise
    return calibration.constants.get(key, otherwise)


def tables(x: Constants, n: int, held_out: FloatArray, attention: AttentionConstants) -> str:
    """TOML of the fit."""
    absolute = np.abs(held_out)
    found: list[tuple[str, str, dict[str, float], Sequence[str]]] = []
    for key in TRAFFIC_KEYS:
        values = {"dram_efficiency": x[f"{key}.dram_efficiency"], **TRAFFIC_TAKEN_OVER}
        for name in (key, "batch_norm_backward") if key == "batch_norm" else (key,):
            found.append(("traffic", name, values, tuple(TRAFFIC_TAKEN_OVER)))
    rates = asdict(faster_attention(attention, x["attention.rate"]))
    taken = [name for name in rates if not name.startswith("math_efficiency")]
    found.append(("attention", "half", rates, taken))
    found.append(("conv", "half", {**_named(x, "conv."), **TAKEN_OVER}, tuple(TAKEN_OVER)))
    text = [
        "# What large products sustain relative to the datasheet, found with the constants below: cards may\n"
        "# boost above the clock that its datasheet's rate is for.\n"
        f"[sustained]\nhalf = {x['sustained']:.4g}\n"
    ]
    for kind, key, values, taken in found:
        path = f"calibration.{kind}.{key}"
        remark = f"Not fitted, because whole models do not show them: {', '.join(taken)}"
        text.append(
            f"[{path}]\n"
            'fitted_on = "timm: throughput of whole models in AMP, on this GPU"\n'
            f"n = {n}\n"
            f'date = "{datetime.date.today().isoformat()}"\n\n'
            f"[{path}.held_out]\n"
            f"mean_percent = {absolute.mean():.1f}\n"
            f"median_percent = {np.median(absolute):.1f}\n\n"
            f"[{path}.constants]\n# {remark}\n"
            + "".join(f"{name} = {float(f'{value:.4g}')}\n" for name, value in values.items())
        )
    return "\n".join(text)


def write(path: Path, text: str) -> None:
    """Replace the GPU's [sustained] and the calibrations of whole models, which come last in its file."""
    before = path.read_text(encoding="utf-8")
    kept = re.split(r"^# What large products sustain", before, maxsplit=1, flags=re.MULTILINE)[0]
    path.write_text(kept.rstrip("\n") + "\n\n" + text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with *models*.csv")
    parser.add_argument("--traces", type=Path, required=True, help="folder that keeps the traced models")
    parser.add_argument("--gpu", default="rtx-3090", help="whose rows (default rtx-3090)")
    parser.add_argument("--rounds", type=int, default=12, help="iterations (default 12)")
    parser.add_argument("--write", action="store_true", help="write into the GPU's TOML file")
    arguments = parser.parse_args()
    paths = sorted(arguments.data.glob("*models*.csv"))
    found = [row for path in paths for row in read_rows(path)[0] if row.gpu == arguments.gpu]
    traces = Traces(arguments.traces)
    traces.trace(found)
    rows = Rows(*lowered(found, traces))
    gpu = load_gpu(arguments.gpu)
    times = Times(as_unmeasured(gpu), rows.works)
    x = fit(rows, times, arguments.rounds)
    errors = 100 * (rows.matrix @ times.us(x) - 1)
    for name, chosen in (("fitted", ~rows.held_out), ("held out", rows.held_out)):
        absolute = np.abs(errors[chosen])
        print(
            f"# {name}: n {chosen.sum()}, {absolute.mean():.1f}/{np.median(absolute):.1f} %", file=sys.stderr
        )
    text = tables(x, len(rows.rows), errors[rows.held_out], times.attention)
    if arguments.write:
        write(Path(tclint.cost.gpu.__file__).parent / f"{gpu.id}.toml", text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
