"""A gain that is within the error of the predicted times warns of nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from tclint.core.finding import Effect, Finding, GpuEffect, Location
from tclint.engine.model_pass import in_doubt

CERTAIN = GpuEffect(cost_us=100.0, gain_us=30.0, gain_percent=10.0, uncertainty_percent=10.0)
UNCERTAIN = replace(CERTAIN, uncertainty_percent=50.0)


@pytest.mark.parametrize(
    ("level", "effect", "expected"),
    [
        ("warning", Effect({"a": UNCERTAIN}), "info"),
        ("warning", Effect({"a": UNCERTAIN, "b": CERTAIN}), "warning"),
        ("warning", Effect(unknown="not priced"), "warning"),
        ("error", Effect({"a": UNCERTAIN}), "error"),
    ],
)
def test_level(level: Literal["warning", "error"], effect: Effect, expected: str) -> None:
    finding = Finding("X001", "x", level, "high", "m", Location("a.py", 1), effect=effect)
    assert in_doubt(finding).level == expected
