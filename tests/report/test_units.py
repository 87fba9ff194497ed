from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tclint.core import units


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0.0, "0 us"),
        (0.853, "0.853 us"),
        (12.0, "12.0 us"),
        (812.4, "812 us"),
        (999.96, "1.00 ms"),
        (4210.0, "4.21 ms"),
        (1.3e6, "1.30 s"),
        (4e9, "4000 s"),
        (-98.0, "-98.0 us"),
        (math.nan, "unknown"),
    ],
)
def test_time(time_us: float, text: str) -> None:
    assert units.time_text(time_us) == text


def test_other_units() -> None:
    assert units.flops_text(291_648_307_200) == "292 GFLOP"
    assert units.count(124_439_808) == "124 M"
    assert units.count(512) == "512"
    assert units.count(0) == "0"
    assert units.percent_text(4.06) == "4.1 %"
    assert units.percent_text(0.0312) == "0.031 %"
    assert units.percent_text(-0.0007) == "0 %"
    assert units.percent_text(math.inf) == "unknown"
    assert units.uncertainty_text(7.2) == "+-8 %"
    assert units.plural(1, "file") == "1 file"
    assert units.plural(0, "file") == "0 files"


@settings(deadline=None)
@given(st.floats(min_value=1e-3, max_value=1e12))
def test_time_is_within_half_a_percent(time_us: float) -> None:
    number, unit = units.time_text(time_us).split()
    back_us = float(number) * {"us": 1.0, "ms": 1e3, "s": 1e6}[unit]
    assert back_us == pytest.approx(time_us, rel=0.0051)
