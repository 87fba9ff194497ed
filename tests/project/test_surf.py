"""The three networks whose A100 training speeds SURF published rank as they did there (benchmarks/surf.py):
at batches 64 and 128, in NCHW (PyTorch's own layout) and in NHWC."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tclint.config.settings import Precision

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import surf

Times = dict[str, dict[Precision, float]]


@pytest.fixture(scope="module", params=surf.BATCHES)
def graphs(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {name: surf.traced(name, request.param) for name in surf.SURF}


@pytest.fixture(params=surf.LAYOUTS)
def times_us(graphs: dict[str, Any], request: pytest.FixtureRequest) -> Times:
    """Predicted step times by model and precision."""
    return {name: surf.step_times_us(graph, request.param) for name, graph in graphs.items()}


def test_speedups_over_fp32_rank_as_measured(times_us: Times) -> None:
    for precision in surf.FASTER:
        predicted = {name: times["fp32"] / times[precision] for name, times in times_us.items()}
        assert surf.ranked(predicted) == surf.ranked(surf.published(precision)), precision


def test_every_step_up_in_precision_pays(times_us: Times) -> None:
    for times in times_us.values():
        assert times["fp32"] > times["tf32"] > times["fp16"]
