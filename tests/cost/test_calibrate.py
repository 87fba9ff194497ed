"""Fitting constants: what measure.py writes gives back the constants that the times were made with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import calibrate
import measure
import measure_cases
from calibrate_shown import MISALIGNED
from measurements import Group, read_folder

from tclint.cost.gpu import load_gpu
from tclint.cost.kernels.constants import ConvolutionConstants, GemmConstants
from tclint.cost.kernels.convolution import convolution_times
from tclint.cost.kernels.matmul import gemm_times
from tclint.cost.kernels.pricing import constants_of, gemm_shapes
from tclint.cost.math_units import unit_class

NOISE = 0.03
GPU = replace(load_gpu("l40s"), sustained={})


def measured(
    folder: Path, cases: Sequence[Any], times_us: Callable[[Sequence[Any]], np.ndarray[Any, Any]]
) -> calibrate.Problem:
    """The calibration problem of a folder that holds these cases with such times, noise added."""

    def write(times: Sequence[float]) -> Group:
        path = folder / f"{cases[0].kind}.csv"
        path.unlink(missing_ok=True)
        results = measure.Results(path, cases[0].kind)
        for case, time_us in zip(cases, times, strict=True):
            results.add(GPU.id, case, float(time_us), "graph", {"device": "cuda"})
        groups = [item for item in read_folder(folder) if isinstance(item, Group)]
        return replace(
            groups[0],
            works=tuple(work for group in groups for work in group.works),
            times_us=np.concatenate([group.times_us for group in groups]),
        )

    # Rows are grouped by kind, so their order is known only when they are read: times are numbered first.
    read = write(range(1, len(cases) + 1))
    rng = np.random.default_rng(0)
    exact = times_us(read.works) * np.exp(NOISE * rng.standard_normal(len(read.works)))
    in_order = np.empty(len(cases))
    in_order[read.times_us.astype(int) - 1] = exact
    write(in_order.tolist())
    (problem,) = calibrate.problems(item for item in read_folder(folder) if isinstance(item, Group))
    return problem


def test_products_give_their_constants_back(tmp_path: Path) -> None:
    true = GemmConstants(
        math_efficiency=0.7,
        dram_efficiency=0.65,
        misaligned_4=1.4,
        misaligned_2=1.5,
        misaligned_1=2.2,
        misaligned_1_tn=2.7,
        launch_us=3.0,
    )
    unit = unit_class(GPU, "bfloat16", tf32=False)
    assert unit is not None
    cases = [case for case in measure_cases.gemms(("bf16",)) if case.row["batch"] == 1]
    problem = measured(tmp_path, cases, lambda works: gemm_times(gemm_shapes(works), GPU, unit, true).time_us)
    found = calibrate.fit(problem, rounds=16)
    assert np.abs(found.held_out_errors).mean() < 4
    for name in ("math_efficiency", *MISALIGNED):
        assert found.constants[name] == pytest.approx(getattr(true, name), rel=0.1), name
    text = calibrate.to_toml(found)
    not_fitted = next(line for line in text.splitlines() if line.startswith("# Not fitted"))
    assert not any(name in not_fitted for name in MISALIGNED)


def test_convolutions_give_their_constants_back(tmp_path: Path) -> None:
    true = ConvolutionConstants(
        forward_factor=1.2,
        transform_bandwidth_share=0.4,
        grouped_fallback_factor=2.5,
        grouped_direct_share=0.02,
        depthwise_nhwc_share=0.75,
        depthwise_nchw_share=0.35,
        depthwise_general_share=0.03,
        depthwise_general_backward_factor=2.5,
    )
    unit = unit_class(GPU, "float16", tf32=False)
    assert unit is not None
    products, _ = constants_of(GPU, "gemm", "half", GemmConstants)
    problem = measured(
        tmp_path,
        list(measure_cases.convolutions(64, ("fp16",), networks=())),
        lambda works: convolution_times(works, GPU, unit, products, true).time_us,
    )
    found = calibrate.fit(problem, rounds=16)
    assert np.median(np.abs(found.held_out_errors)) < 6
    for name in (
        "transform_bandwidth_share",
        "grouped_direct_share",
        "depthwise_nhwc_share",
        "depthwise_nchw_share",
        "depthwise_general_share",
        "depthwise_general_backward_factor",
    ):
        assert found.constants[name] == pytest.approx(getattr(true, name), rel=0.15), name


def test_constants_that_no_row_shows_keep_their_start(tmp_path: Path) -> None:
    unit = unit_class(GPU, "float16", tf32=False)
    assert unit is not None
    cases = [
        case
        for case in measure_cases.convolutions(64, ("fp16",), networks=())
        if case.row["groups"] == 1 and case.row["layout"] == "nhwc"
    ]
    products, _ = constants_of(GPU, "gemm", "half", GemmConstants)
    problem = measured(
        tmp_path,
        cases,
        lambda works: convolution_times(works, GPU, unit, products, ConvolutionConstants()).time_us,
    )
    assert "transform_bandwidth_share" not in problem.free
    assert not any(name.startswith(("depthwise", "grouped")) for name in problem.free)
    assert {"forward_factor", "dgrad_factor", "wgrad_factor"} <= set(problem.free)


def test_a_fit_that_ends_at_a_bound_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = unit_class(GPU, "bfloat16", tf32=False)
    assert unit is not None
    cases = [case for case in measure_cases.gemms(("bf16",)) if case.row["batch"] == 1]
    true = GemmConstants(dram_efficiency=0.65)
    measured(tmp_path, cases, lambda works: gemm_times(gemm_shapes(works), GPU, unit, true).time_us)
    monkeypatch.setattr(calibrate, "BOUNDS", {**calibrate.BOUNDS, "dram_efficiency": (0.3, 0.5)})
    written: list[Path] = []
    monkeypatch.setattr(calibrate, "write_tables", lambda path, result: written.append(path))
    monkeypatch.setattr(sys, "argv", ["calibrate.py", "--data", str(tmp_path), "--rounds", "4", "--write"])
    assert calibrate.main() == 2
    assert written == []
    assert "dram_efficiency = 0.5 at a bound of the search" in capsys.readouterr().err
