"""What-ifs of the circumstances: the same graph under another scenario."""

from __future__ import annotations

from dataclasses import replace

from tclint.cost.scenario import Scenario


def channels_last(scenario: Scenario) -> Scenario:
    """Model and images in NHWC (NDHWC)."""
    return replace(scenario, layout="channels_last")


def compiled(scenario: Scenario) -> Scenario:
    """The model under torch.compile."""
    return replace(scenario, compiled=True)
