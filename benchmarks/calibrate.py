"""Fit the cost model's constants to measured kernel times and write them into the GPUs' TOML files.

    python benchmarks/calibrate.py --data DIR [--gpu ID] [--kind gemm] [--write]

One fit per GPU, kind and precision class, over all files of the folder. A fifth of the shapes, chosen by a
hash of (N, K), is held out; the errors written beside the constants are theirs. Needs scipy.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from calibrate_shown import MISALIGNED, convolution_rows, gemm_rows, not_shown
from measurements import (
    DTYPES,
    SERVING_SOURCES,
    FloatArray,
    Group,
    Harness,
    Unhandled,
    WholeModels,
    harness_of,
    read_folder,
)

import tclint.cost.gpu
from tclint.core.toml import parse_toml
from tclint.cost.gpu import Gpu, load_gpu
from tclint.cost.gpu.calibration import SIZE_BINS_US
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
from tclint.cost.kernels.pricing import BATCHED, constants_of, gemm_shapes
from tclint.cost.math_units import UnitClass, tf32_switches, unit_class
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, Work

LARGEST_FIT = 4000
"""Rows per fit, drawn at random from the fitted part of larger sets."""
SMALL_SET = 500
"""Fewer rows than this are too few to leave a fifth out of the constants that ship: the held-out errors then
come from a fit without that fifth, the constants from one with it."""
LEAST_PER_SIZE = 20
"""Held-out rows from which on an error is stated for a size of its own."""
ROBUST_SCALE = 0.06
"""Relative error above which a row's pull on the fit grows only linearly."""
PRIOR_SIGMA = 0.7
"""How far, in log units, a constant may stray from its start where the rows say nothing about it."""
PRIOR_WEIGHT = 0.25
PRIOR_WEIGHTS: dict[str, float] = {"conv": 0.05}
"""cuDNN's kernels are less like the start, which is cuBLAS's, than other GPUs' GEMMs are like the A100's."""

BOUNDS: Mapping[str, tuple[float, float]] = {
    "math_efficiency": (0.3, 1.0),
    "dram_efficiency": (0.3, 1.0),
    "softness": (1.0, 10.0),
    "wave_rounding": (0.01, 1.0),
    "l2_efficiency": (0.05, 5.0),
    "l2_capacity_share": (0.02, 1.0),
    "l2_residency_exponent": (0.3, 8.0),
    # The clock of a 70 W card may fall to a third.
    "power_slowdown": (1e-3, 2.0),
    "long_k_slowdown": (1e-3, 0.5),
    "transform_bandwidth_share": (0.3, 0.95),
    "winograd_gain": (1.0, 2.25),
}
TRAFFIC_BOUNDS: Mapping[str, tuple[float, float]] = {
    "dram_efficiency": (0.3, 0.95),
    "l2_efficiency": (0.3, 2.5),
    "l2_capacity_share": (0.1, 1.2),
    # Below, kernels of one block in published traces.
    "launch_us": (2.0, 10.0),
    "sm_bytes_per_clock": (2.0, 64.0),
}
STREAMING_BOUNDS: Mapping[str, tuple[float, float]] = {
    # What element by element kernels of 100 MB and more reach in published traces of V100, A100 and H100;
    # files of smaller tensors cannot tell it from what the L2 serves.
    "dram_efficiency": (0.83, 0.95),
}
CONVOLUTION_BOUNDS: Mapping[str, tuple[float, float]] = {
    "launch_us": (0.5, 40.0),
    "split_k_ratio": (0.05, 50.0),
    "halo_reread": (0.01, 8.0),
    # Below this, large convolutions would exceed the datasheet rate.
    "forward_factor": (0.98, 2.0),
    "dgrad_factor": (0.98, 2.0),
    "wgrad_factor": (0.98, 2.0),
}
"""The search ends at these bounds and at ANY_BOUNDS for all other constants."""
ANY_BOUNDS = (1e-3, 200.0)
AT_BOUND = 2e-3
"""A constant this close to a bound, as a share of the bound, lies at it."""
PHYSICAL: Mapping[str, tuple[float, ...]] = {
    # The rate of the datasheet.
    "math_efficiency": (1.0,),
    **dict.fromkeys(("forward_factor", "dgrad_factor", "wgrad_factor"), (0.98,)),
    # The bandwidth of the datasheet, of a copy, of kernels that move 100 MB.
    "dram_efficiency": (1.0, 0.95, 0.83),
    # Nothing overlaps.
    "softness": (1.0,),
    # No waves at all, or whole ones.
    "wave_rounding": (0.01, 1.0),
    # Kernels of one block.
    "launch_us": (2.0,),
    # An L2 that is no faster than DRAM.
    "l2_efficiency": (0.3,),
    # 16 multiplications instead of 36.
    "winograd_gain": (2.25,),
    # Effects that are absent.
    **dict.fromkeys(("long_k_slowdown", "power_slowdown", "row_us"), (1e-3,)),
}
"""Bounds beyond which no value makes sense. A constant at any other bound shows what the solver was allowed,
not what the rows say: an error of the calibration."""

HARNESS_SOURCES = frozenset({"neusight"})
"""Campaigns timed from the host: a harness per kind is fitted, and launch_us is not."""


CHOSEN = ("least_tile_side", "most_tile_side")
TILE_SIDES = ((32.0, 256.0), (64.0, 256.0), (64.0, 128.0), (128.0, 128.0))
"""Least and most side of a tile, tried one after the other: which kernels a library has for CUDA cores."""
TILE_ROWS = 800
"""Rows and iterations of those trials."""
TILE_ROUNDS = 10

PRE_HOPPER_KERNELS: Mapping[str, float] = {
    "misaligned_4": 2.3,
    "misaligned_2": 2.4,
    "misaligned_1": 5.5,
    "misaligned_1_tn": 3.2,
    "misaligned_memory": 2.3,
}
"""What misaligned products cost where they cannot run the kernels that load whole tiles, and odd rows a
part of the bandwidth. Odd ones run Turing's instructions (cutlass_75_tensorop_bf16_s1688gemm): between a head
of 8,192 x 50,257 x 768 on an H100 (6.57 ms, padded 0.91) and two products of 3,137 tokens there. The others,
odd K of linear layers among them, from reports of 2.5 to 3.2 times; not fitted."""
ADA_KERNELS: Mapping[str, float] = {
    "misaligned_4": 1.2,
    "misaligned_2": 1.2,
    "misaligned_1": 1.4,
    "misaligned_1_tn": 1.4,
}
"""The same on Ada: 2,055 x 2,055 x 2,055 in bf16 on an RTX 4090 takes 150 us, 2,040 each way 109; even sizes
lie between. Not fitted."""

STARTS: Mapping[tuple[str, str], Mapping[str, float]] = {
    # What LayerNorm over 768 columns takes on the H100 beyond its bytes.
    ("traffic", "norm"): {"row_us": 0.13},
    ("gemm", "blackwell"): dict(PRE_HOPPER_KERNELS),
    # The traces have few large products; others reach 120 to 125 of 156 TFLOP/s.
    # misaligned_*: the law measured on the A100 for fewer than 4 elements; narrow products in traces do not
    # show it.
    ("gemm", "tf32"): {
        "math_efficiency": 0.8,
        "launch_us": 3.0,
        **dict.fromkeys(("misaligned_4", "misaligned_2"), 1.71),
    },
    # Weights of more than 16 MiB come from DRAM, smaller ones do not: a step, in a warm cache of 96 MiB.
    ("gemm", "ada"): {
        **ADA_KERNELS,
        "l2_capacity_share": 0.17,
        "l2_residency_exponent": 4.0,
        "l2_efficiency": 0.35,
    },
    ("gemm", "hopper"): {
        **PRE_HOPPER_KERNELS,
        "math_efficiency": 0.86,
        "k_step_ns": 1.26,
        "prologue_us": 0.26,
        "epilogue_us": 0.3,
        "softness": 2.85,
        "launch_us": 2.45,
        "sm_bandwidth_ratio": 20.0,
        "l2_efficiency": 0.39,
        "l2_capacity_share": 0.8,
        "dram_efficiency": 0.87,
        "power_slowdown": 0.2,
        "split_k_us": 2.7,
        "l2_operand_ratio": 10.0,
        "tile_overhead": 0.005,
    },
    # About what 16-bit kernels of the same GPUs take.
    ("conv", "fp32"): {"launch_us": 8.0},
    ("gemm", "fp32"): {
        "math_efficiency": 0.93,
        "long_k_slowdown": 0.1,
        "tile_overhead": 0.08,
        "prologue_us": 0.05,
        "epilogue_us": 0.05,
        "k_step_ns": 10.0,
        "softness": 4.0,
        "wave_rounding": 0.4,
        "launch_us": 2.0,
        "sm_bandwidth_ratio": 5.0,
        "split_k_us": 2.0,
        "l2_efficiency": 0.3,
        "l2_capacity_share": 0.3,
    },
    ("gemm", "fp32_batched"): {
        "math_efficiency": 0.95,
        "tile_overhead": 0.08,
        "prologue_us": 0.05,
        "epilogue_us": 0.05,
        "k_step_ns": 120.0,
        "softness": 6.0,
        "wave_rounding": 0.4,
        "launch_us": 2.0,
        "sm_bandwidth_ratio": 5.0,
        "l2_operand_ratio": 0.2,
        "l2_capacity_share": 0.5,
        "l2_efficiency": 1.0,
    },
}
"""Where the search begins, by kind and class or generation, in other regimes than the defaults of
tclint.cost.kernels.constants, which are the A100's."""


@dataclass(frozen=True)
class Problem:
    """One set of constants to fit."""

    gpu: Gpu
    kind: str
    precision_class: str
    groups: tuple[Group, ...]
    table: type[Any]
    free: tuple[str, ...]
    start: Mapping[str, float]
    predict: Callable[[Sequence[Work]], Callable[[Any], FloatArray]]
    """Works to a function from constants to times."""


def _with_sustained_removed(gpu: Gpu) -> Gpu:
    return replace(gpu, sustained={}, step_slowdown={})


def problems(groups: Iterable[Group]) -> list[Problem]:
    """Groups of one GPU, kind and precision class, put together."""
    sets: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        torch_dtype, precision = DTYPES[group.dtype]
        try:
            gpu = load_gpu(group.gpu)
        except tclint.core.errors.UsageError as error:
            print(f"# {group.file}: {error}", file=sys.stderr)
            continue
        first = group.works[0]
        matmul_tf32, convolution_tf32 = tf32_switches(precision)
        tf32 = convolution_tf32 if isinstance(first, Convolution) else matmul_tf32
        unit = unit_class(gpu, torch_dtype, tf32=tf32)
        if isinstance(first, Traffic):
            key = ("traffic", _traffic_key(first))
        elif unit is None:
            continue
        elif isinstance(first, Gemm):
            key = ("gemm", unit.calibration + (BATCHED if group.kind == "bmm" else ""))
        elif isinstance(first, Convolution):
            key = ("conv", unit.calibration)
        else:
            key = ("attention", unit.calibration)
        sets.setdefault((gpu.id, *key), []).append(group)
    return [
        _problem(load_gpu(gpu_id), kind, key, tuple(members)) for (gpu_id, kind, key), members in sets.items()
    ]


def _traffic_key(work: Traffic) -> str:
    return work.operation if work.operation.startswith("vllm_") else work.traffic_class


def _problem(gpu: Gpu, kind: str, key: str, groups: tuple[Group, ...]) -> Problem:
    bare = _with_sustained_removed(gpu)
    torch_dtype, precision = DTYPES[groups[0].dtype]
    tf32 = tf32_switches(precision)[1 if kind == "conv" else 0]
    unit = unit_class(gpu, torch_dtype, tf32=tf32)
    table: type[Any]
    works = [work for group in groups for work in group.works]
    excluded: set[str] = set(CHOSEN)
    if any(group.source in HARNESS_SOURCES for group in groups):
        excluded.add("launch_us")
    if kind == "gemm":
        table, predict = GemmConstants, _predict_gemm(bare, unit)
        excluded |= not_shown(gemm_rows([w for w in works if isinstance(w, Gemm)], unit))
        excluded |= set(MISALIGNED) if key == "tf32" else set()
    elif kind == "conv":
        table, predict = ConvolutionConstants, _predict_convolution(bare, unit)
        excluded |= not_shown(convolution_rows([w for w in works if isinstance(w, Convolution)], unit))
        # Float32 rows also run Winograd's and Fourier transforms; a fit makes up for them by 22 us a launch.
        excluded |= {"launch_us"} if key == "fp32" else set()
    elif kind == "attention":
        table, predict = AttentionConstants, _predict_attention(bare, unit)
        dims = {w.head_dim for w in works if isinstance(w, Attention)}
        excluded.add("backward_ratio")
        excluded |= {f"math_efficiency_{dim}" for dim in (64, 128, 192, 256, 512) if dim not in dims}
    else:
        table, predict = TrafficConstants, _predict_traffic(bare)
        if "launch_us" in excluded:
            # Tensors that fit the L2 vanish in what the host takes.
            excluded |= {"l2_efficiency", "l2_capacity_share"}
    # Never the GPU's own present constants: a second run gives what the first one gave.
    start = asdict(table()) | dict(STARTS.get((kind, key), STARTS.get((kind, gpu.generation), {})))
    free = tuple(field.name for field in fields(table) if field.name not in excluded)
    return Problem(gpu, kind, key, groups, table, free, start, predict)


def _predict_gemm(
    gpu: Gpu, unit: UnitClass | None
) -> Callable[[Sequence[Work]], Callable[[Any], FloatArray]]:
    def prepare(works: Sequence[Work]) -> Callable[[Any], FloatArray]:
        assert unit is not None
        shapes = gemm_shapes([work for work in works if isinstance(work, Gemm)])
        return lambda constants: gemm_times(shapes, gpu, unit, constants).time_us

    return prepare


def _predict_convolution(
    gpu: Gpu, unit: UnitClass | None
) -> Callable[[Sequence[Work]], Callable[[Any], FloatArray]]:
    def prepare(works: Sequence[Work]) -> Callable[[Any], FloatArray]:
        assert unit is not None
        convolutions = [work for work in works if isinstance(work, Convolution)]
        gemm_constants, _ = constants_of(gpu, "gemm", unit.calibration, GemmConstants)
        return lambda constants: convolution_times(convolutions, gpu, unit, gemm_constants, constants).time_us

    return prepare


def _predict_attention(
    gpu: Gpu, unit: UnitClass | None
) -> Callable[[Sequence[Work]], Callable[[Any], FloatArray]]:
    def prepare(works: Sequence[Work]) -> Callable[[Any], FloatArray]:
        assert unit is not None
        attentions = [work for work in works if isinstance(work, Attention)]
        return lambda constants: attention_times(attentions, gpu, unit, constants).time_us

    return prepare


def _predict_traffic(gpu: Gpu) -> Callable[[Sequence[Work]], Callable[[Any], FloatArray]]:
    def prepare(works: Sequence[Work]) -> Callable[[Any], FloatArray]:
        traffic = [work for work in works if isinstance(work, Traffic)]
        return lambda constants: traffic_times_us(traffic, gpu, constants)

    return prepare


@dataclass(frozen=True)
class Fit:
    """Fitted constants with the errors of the held-out rows, in percent."""

    problem: Problem
    constants: Mapping[str, float]
    harnesses: Mapping[tuple[str, str, str], Harness]
    """Fitted by (source, GPU, kind)."""
    n: int
    held_out_errors: FloatArray
    held_out_times_us: FloatArray
    fitted_errors: FloatArray


def fit(problem: Problem, rounds: int) -> Fit:
    """Constants and their held-out errors; sets below SMALL_SET rows ship a second fit, of all rows."""
    problem = with_tile_sides(problem)
    result = _fit(problem, rounds, with_held_out=False)
    if result.n >= SMALL_SET:
        return result
    final = _fit(problem, rounds, with_held_out=True)
    return replace(result, constants=final.constants, harnesses=final.harnesses)


def with_tile_sides(problem: Problem) -> Problem:
    """The problem with the tiles that suit its fitted rows best, where tiles are not a matter of course."""
    if problem.kind != "gemm" or not problem.precision_class.startswith("fp32"):
        return problem
    tried = []
    for sides in TILE_SIDES:
        start = {**problem.start, **dict(zip(CHOSEN, sides, strict=True))}
        found = replace(problem, start=start)
        trial = _fit(found, TILE_ROUNDS, with_held_out=False, most_rows=TILE_ROWS)
        tried.append((float(np.abs(trial.fitted_errors).mean()), found))
    return min(tried, key=lambda pair: pair[0])[1]


def _fit(problem: Problem, rounds: int, *, with_held_out: bool, most_rows: int = LARGEST_FIT) -> Fit:
    """Least squares on logarithms of times, robust against outliers, with a weak pull to the start."""
    from scipy.optimize import least_squares

    works = [work for group in problem.groups for work in group.works]
    measured = np.concatenate([group.times_us for group in problem.groups])
    held_out = np.concatenate([group.held_out for group in problem.groups])
    names = [(group.source, group.gpu, group.kind) for group in problem.groups]
    fitted = [name for name in dict.fromkeys(names) if name[0] in HARNESS_SOURCES]
    which = np.concatenate(
        [
            np.full(len(group), fitted.index(name) if name in fitted else len(fitted) + index)
            for index, (group, name) in enumerate(zip(problem.groups, names, strict=True))
        ]
    )
    known = [harness_of(group) for group in problem.groups]
    judged = np.concatenate([np.full(len(g), _is_second_campaign(g, problem)) for g in problem.groups])
    train = np.flatnonzero(~judged if with_held_out else ~(held_out | judged))
    if len(train) > most_rows:
        train = np.sort(np.random.default_rng(0).choice(train, most_rows, replace=False))
    bounds = bounds_of(problem.kind, problem.precision_class)
    limits = [bounds.get(name, ANY_BOUNDS) for name in problem.free]
    limits += [(1.0, 90.0)] * (2 * len(fitted))
    low, high = (np.log([limit[side] for limit in limits]) for side in (0, 1))
    first = [max(problem.start[name], 1e-3) for name in problem.free]
    for index in range(len(fitted)):
        # The floor shows as the shortest times, and a kernel just above it is about half of what is seen.
        floor_us = float(np.percentile(measured[which == index], 5))
        first += [floor_us, 0.6 * floor_us]
    start = np.log(first)
    start = np.clip(start, low + 1e-6, high - 1e-6)
    count = len(problem.free)

    def constants(x: FloatArray) -> dict[str, float]:
        return dict(problem.start) | dict(zip(problem.free, np.exp(x[:count]).tolist(), strict=True))

    def seen(x: FloatArray, rows: Any, kernel_us: FloatArray) -> FloatArray:
        floors = np.array([*np.exp(x[count::2]), *(harness.floor_us for harness in known)])
        added = np.array([*np.exp(x[count + 1 :: 2]), *(harness.added_us for harness in known)])
        result: FloatArray = np.maximum(floors[which[rows]], added[which[rows]] + kernel_us)
        return result

    predict = problem.predict([works[i] for i in train])

    def residuals(x: FloatArray) -> FloatArray:
        times = seen(x, train, predict(problem.table(**constants(x))))
        prior = PRIOR_WEIGHTS.get(problem.kind, PRIOR_WEIGHT) * (x - start)[:count] / PRIOR_SIGMA
        return np.concatenate([np.log(times / measured[train]), prior])

    found = least_squares(
        residuals,
        start,
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        diff_step=2e-3,
        max_nfev=rounds,
        bounds=(low, high),
    )
    best = constants(found.x)
    everything = np.arange(len(works))
    times = seen(found.x, everything, problem.predict(works)(problem.table(**best)))
    errors = 100 * (times / measured - 1)
    return Fit(
        problem,
        best,
        {
            name: Harness(float(np.exp(found.x[count + 2 * i])), float(np.exp(found.x[count + 2 * i + 1])))
            for i, name in enumerate(fitted)
        },
        len(works),
        errors[held_out],
        measured[held_out],
        errors[~(held_out | judged)],
    )


def bounds_of(kind: str, precision_class: str) -> dict[str, tuple[float, float]]:
    """The bounds of the constants that one kind of fit searches."""
    bounds = {**BOUNDS, **(CONVOLUTION_BOUNDS if kind == "conv" else {})}
    if kind == "traffic":
        bounds |= TRAFFIC_BOUNDS
        if precision_class == "elementwise":
            bounds |= STREAMING_BOUNDS
    return bounds


def at_bounds(fitted: Mapping[str, float], bounds: Mapping[str, tuple[float, float]]) -> list[str]:
    """The fitted constants that lie at a bound of the search, unless physics sets that bound."""
    return [
        f"{name} = {value:.4g}"
        for name, value in fitted.items()
        for bound in bounds.get(name, ANY_BOUNDS)
        if abs(value / bound - 1) < AT_BOUND
        and not any(abs(value / end - 1) < AT_BOUND for end in PHYSICAL.get(name, ()))
    ]


def _is_second_campaign(group: Group, problem: Problem) -> bool:
    """Products of serving campaigns and traces where others were measured: older libraries, a quarter slower.

    A fit between the two would be wrong of both; they count in the errors that are stated.
    """
    later = SERVING_SOURCES | {"traces"}
    others = any(other.source not in later for other in problem.groups)
    return problem.kind == "gemm" and group.source in later and others


def to_toml(result: Fit) -> str:
    """The fit as the tables of a GPU's TOML file."""
    problem = result.problem
    path = f"calibration.{problem.kind}.{problem.precision_class}"
    fitted = [g for g in problem.groups if not _is_second_campaign(g, problem)]
    judged = sorted({g.source for g in problem.groups} - {g.source for g in fitted})
    campaigns = ", ".join(sorted({g.source or g.file for g in fitted}))
    kinds = ", ".join(sorted({g.kind for g in fitted}))
    dtypes = ", ".join(sorted({g.dtype for g in fitted}))
    judged_on = f"; errors on {', '.join(judged)} as well" if judged else ""
    absolute = np.abs(result.held_out_errors)
    lines = [
        f"[{path}]",
        f'fitted_on = "{campaigns}: {kinds} in {dtypes}, on this GPU{judged_on}"',
        f"n = {result.n}",
        f'date = "{datetime.date.today().isoformat()}"',
        "",
        f"[{path}.held_out]",
        f"mean_percent = {absolute.mean():.1f}",
        f"median_percent = {np.median(absolute):.1f}",
    ]
    lower = 0.0
    for name, upper in SIZE_BINS_US:
        chosen = (result.held_out_times_us >= lower) & (result.held_out_times_us < upper)
        if chosen.sum() >= LEAST_PER_SIZE:
            lines.append(f"{name} = {absolute[chosen].mean():.1f}")
        lower = upper
    lines += ["", f"[{path}.constants]"]
    assumed = [name for name in result.constants if name not in problem.free and name not in CHOSEN]
    if assumed:
        lines.append("# Not fitted, because these measurements do not show them: " + ", ".join(assumed))
    lines += [f"{name} = {float(f'{value:.4g}')}" for name, value in result.constants.items()]
    return "\n".join(lines) + "\n"


def write_tables(path: Path, result: Fit) -> None:
    """Replace the fit's tables in a GPU's TOML file, or append them."""
    key = re.escape(f"calibration.{result.problem.kind}.{result.problem.precision_class}")
    text = path.read_text(encoding="utf-8")
    # A table lasts until the next header; comments and values between belong to it.
    kept = re.sub(rf"^\[{key}(?:\.\w+)?\]\n(?:(?!\[).*\n?)*", "", text, flags=re.MULTILINE)
    path.write_text(kept.rstrip("\n") + "\n\n" + to_toml(result), encoding="utf-8")


def write_harnesses(path: Path, results: Sequence[Fit]) -> None:
    """Replace the fitted harnesses in harnesses.toml; 'default' is the mean over the fitted GPUs."""
    text = path.read_text(encoding="utf-8")
    tables: dict[str, dict[str, dict[str, dict[str, float]]]] = parse_toml(text)
    for result in results:
        for (source, gpu, kind), harness in result.harnesses.items():
            figures = {name: round(value, 1) for name, value in asdict(harness).items()}
            tables.setdefault(source, {}).setdefault(gpu, {})[kind] = figures
    lines = [line for line in text.splitlines() if line.startswith("#")]
    for source, by_gpu in sorted(tables.items()):
        measured = {gpu: kinds for gpu, kinds in by_gpu.items() if gpu != "default"}
        default = {}
        for kind in sorted({kind for kinds in measured.values() for kind in kinds}):
            found = [kinds[kind] for kinds in measured.values() if kind in kinds]
            default[kind] = {
                name: round(float(np.mean([figures[name] for figures in found])), 1) for name in found[0]
            }
        for gpu, kinds in [*sorted(measured.items()), ("default", default)]:
            lines += ["", f'[{source}."{gpu}"]']
            for kind, figures in sorted(kinds.items()):
                values = ", ".join(f"{name} = {value}" for name, value in figures.items())
                lines.append(f"{kind} = {{ {values} }}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of CSV files with measured times")
    parser.add_argument("--gpu", action="append", help="only this GPU (repeatable)")
    parser.add_argument("--kind", action="append", help="only gemm, conv, attention or traffic (repeatable)")
    parser.add_argument("--rounds", type=int, default=40, help="iterations per fit (default 40)")
    parser.add_argument(
        "--write", action="store_true", help="write into tclint/cost/gpu/*.toml, not to stdout"
    )
    arguments = parser.parse_args()
    groups = []
    for item in read_folder(arguments.data):
        if isinstance(item, WholeModels):
            print(f"# {item.file}: calibrate_models.py fits whole models", file=sys.stderr)
        elif isinstance(item, Unhandled):
            print(f"# {item.file}: {item.kind}: {item.reason}", file=sys.stderr)
        else:
            groups.append(item)
    wanted_gpus = {load_gpu(name).id for name in arguments.gpu or ()}
    results = []
    failed = False
    for problem in problems(groups):
        if (wanted_gpus and problem.gpu.id not in wanted_gpus) or (
            arguments.kind and problem.kind not in arguments.kind
        ):
            continue
        result = fit(problem, arguments.rounds)
        results.append(result)
        absolute = np.abs(result.held_out_errors)
        print(
            f"# {problem.gpu.id} {problem.kind}.{problem.precision_class}: n {result.n}, "
            f"held out {absolute.mean():.1f}/{np.median(absolute):.1f} %, "
            f"fitted {np.abs(result.fitted_errors).mean():.1f}",
            file=sys.stderr,
        )
        stuck = at_bounds(
            {name: result.constants[name] for name in problem.free},
            bounds_of(problem.kind, problem.precision_class),
        )
        if stuck:
            failed = True
            print(
                f"calibrate: {problem.gpu.id} {problem.kind}.{problem.precision_class}: {', '.join(stuck)} "
                "at a bound of the search, so nothing is written; widen the bound or, if the rows do not "
                "show the constant, leave it out of the fit (calibrate_shown.py)",
                file=sys.stderr,
            )
        elif arguments.write:
            folder = Path(tclint.cost.gpu.__file__).parent
            write_tables(folder / f"{problem.gpu.id}.toml", result)
        else:
            print(to_toml(result))
    if arguments.write and any(result.harnesses for result in results):
        write_harnesses(Path(__file__).with_name("harnesses.toml"), results)
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
