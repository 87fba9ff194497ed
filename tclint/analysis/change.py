"""What a finding's fix does to the model, so that several fixes can be priced together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tclint.cost.scenario import Scenario
from tclint.graph.dims.coupled import DimGroup
from tclint.graph.ops import Graph

Edit = Callable[[Graph], Graph | None]
"""Replaces ops of a graph of the same op indices; None where it does not fit that graph."""


@dataclass(frozen=True, slots=True)
class Change:
    """Other sizes, other layers, other circumstances, or several of these."""

    sizes: tuple[tuple[DimGroup, int], ...] = ()
    edit: Edit | None = None
    scenario: Callable[[Scenario], Scenario] | None = None


def resize(sizes: Mapping[DimGroup, int]) -> Change:
    """The change that gives these groups other sizes."""
    return Change(sizes=tuple(sizes.items()))
