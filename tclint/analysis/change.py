"""The effect of a finding's fix on a model and its step, in one form for making, pricing and joining it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tclint.graph.dims.coupled import DimGroup
from tclint.graph.ops import Graph

GraphEdit = Callable[[Graph], Graph | None]
"""Replaces ops in a graph with the same op indices; returns None if it does not fit that graph."""


@dataclass(frozen=True, slots=True)
class Change:
    """Other sizes, other layers, other circumstances, or several of these.

    `GraphContext.after` makes it, `GraphContext.effect` prices it.
    """

    sizes: tuple[tuple[DimGroup, int], ...] = ()
    edit: GraphEdit | None = None
    """An edit of the graph, made after the sizes."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the step after the change, by which it is priced: {'layout': 'channels_last'}."""
    presupposes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that it needs, for example for a kernel that exists only in channels_last; the gain is
    relative to a step with them."""
    sizes_before: tuple[tuple[DimGroup, int], ...] = ()
    """Sizes that the program gives the model before it trains; the gain is relative to a step with them."""
    samples: float = 1.0
    """The samples of the changed step over those of the present one, since another batch gains per sample."""

    instead: Change | None = None
    """For a change of architecture: a change that keeps the model's own and gains less."""

    @property
    def is_of_batch(self) -> bool:
        """Whether its gain is per sample, so that it joins no other change of a step."""
        return self.samples != 1.0


def resize(sizes: Mapping[DimGroup, int]) -> Change:
    """The change that gives these groups other sizes."""
    return Change(sizes=tuple(sizes.items()))


def together(changes: Sequence[Change]) -> Change:
    """Several changes as one, made in order; a group gets the size that the first of them gives it."""
    sizes: dict[DimGroup, int] = {}
    settings: dict[str, Any] = {}
    edits = [change.edit for change in changes if change.edit is not None]
    for change in changes:
        sizes = dict(change.sizes) | sizes
        settings |= change.settings

    def edit(graph: Graph) -> Graph | None:
        found: Graph | None = graph
        for one in edits:
            found = None if found is None else one(found)
        return found

    return Change(tuple(sizes.items()), edit if edits else None, settings)


CHANNELS_LAST = Change(settings={"layout": "channels_last"})
"""Model and images in NHWC (NDHWC)."""
