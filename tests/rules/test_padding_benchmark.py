"""Padding what is recommended, and building it for real, gives the predicted model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from examples import FIXTURES, trace_fixture

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import padding
import padding_styles

# The benchmark itself takes all fixtures; these are quick and different.
MODELS = ["mobilenet_v2", "ssd300", "vgg19"]


@pytest.mark.parametrize("name", MODELS)
def test_recommended_paddings_run_with_the_predicted_shapes(name: str) -> None:
    found = list(padding.outcomes(padding._load(FIXTURES / f"{name}.py"), name))
    assert found
    assert [outcome for outcome in found if not outcome.passed] == []


@pytest.mark.parametrize("name", ["branches", "grouped_queries", "tied", "temporal"])
def test_widths_written_in_other_ways(name: str) -> None:
    [style] = [style for style in padding_styles.STYLES if style.name == name]
    found = list(padding.outcomes(style, name))
    assert found
    assert [outcome for outcome in found if not outcome.passed] == []


def test_a_wrong_prediction_is_noticed() -> None:
    as_it_is, wider = trace_fixture("vgg19"), trace_fixture("vgg19", hidden=4104)
    assert padding._difference(as_it_is, as_it_is) == ""
    assert "linear" in padding._difference(as_it_is, wider)
