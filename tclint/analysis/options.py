"""Prices several ways to make one change over the whole step, and chooses the one to advise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.core.finding import Effect
from tclint.graph.dims.coupled import DimsUnresolved

T = TypeVar("T")

TOLERATED = 0.5
"""Options are equal if they differ by less than this share of the gain that a report lists."""


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One way to make a change, with its price."""

    what: T
    change: Change
    effect: Effect

    @property
    def gain_percent(self) -> float:
        return self.effect.mean_gain_percent


def priced(
    context: GraphContext,
    cost_of: Iterable[int],
    options: Iterable[tuple[T, Change]],
    refused: list[str] | None = None,
) -> list[Option[T]]:
    """The options that fit the model.

    Args:
        context: the model.
        cost_of: indices of the ops whose present time is the finding's cost.
        options: (value, change) of each option.
        refused: collects the reasons why the other options do not fit.
    """
    concerned = tuple(cost_of)
    found = []
    for what, change in options:
        try:
            found.append(Option(what, change, context.effect(concerned, change)))
        except DimsUnresolved as error:
            if refused is not None:
                refused.append(str(error))
    return found


def best_option(
    context: GraphContext,
    options: Sequence[Option[T]],
    liked: Callable[[T], Any] = lambda _: 0,
    worth: Callable[[Option[T]], float] = lambda option: option.gain_percent,
) -> Option[T] | None:
    """The option that gains most, or among those with equal gains the preferred one.

    Gains are equal if they differ by less than half of `min_gain_percent` of the best option's step
    (TOLERATED), so that after any of these options no other one would be advised.
    """
    if not options:
        return None
    best = max(worth(option) for option in options)
    left_out = TOLERATED * context.settings.min_gain_percent * max(1.0 - best / 100.0, 0.0)
    return max(
        (option for option in options if worth(option) >= best - left_out), key=lambda o: liked(o.what)
    )
