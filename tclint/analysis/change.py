"""What a finding's fix does to a model and its step: one form, in which it is made, priced and joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tclint.graph.dims.coupled import DimGroup
from tclint.graph.ops import Graph

Edit = Callable[[Graph], Graph | None]
"""Replaces ops of a graph of the same op indices; None where it does not fit that graph."""


@dataclass(frozen=True, slots=True)
class Change:
    """Other sizes, other layers, other circumstances, or several of these.

    `GraphContext.after` makes it, `GraphContext.effect` prices it.
    """

    sizes: tuple[tuple[DimGroup, int], ...] = ()
    edit: Edit | None = None
    """Made after the sizes."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the step is priced by and that it has afterwards: {'layout': 'channels_last'}."""
    presupposes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that it starts from, as of a kernel that exists in channels_last only; it gains from there."""
    samples: float = 1.0
    """Samples of the changed step over those of the present one: the gain of another batch is per sample."""

    instead: Change | None = None
    """For another architecture: the change that keeps the model's own, and gains less."""

    @property
    def is_of_batch(self) -> bool:
        """Whether its gain is per sample, so that it joins no other change of a step."""
        return self.samples != 1.0


def resize(sizes: Mapping[DimGroup, int]) -> Change:
    """The change that gives these groups other sizes."""
    return Change(sizes=tuple(sizes.items()))


def together(changes: Sequence[Change]) -> Change:
    """Several changes as one, made in their order; a group keeps the size that the first gives it."""
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
CONTIGUOUS = Change(settings={"layout": "contiguous"})
COMPILED = Change(settings={"compiled": True})
"""The model under torch.compile."""
