"""Several ways to make one change: each priced over the whole step, and the one to advise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
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
    """One way, priced."""

    what: T
    change: Change
    effect: Effect

    @property
    def gain_percent(self) -> float:
        return mean_gain_percent(self.effect)


def mean_gain_percent(effect: Effect) -> float:
    """Over the GPUs, as a change is chosen for all of them: the gain of the geometric mean of their steps.

    One change after another is then worth what both are together, in any order.
    """
    left = [max(1.0 - gain.gain_percent / 100.0, 0.0) for gain in effect.per_gpu.values()]
    return 100.0 * (1.0 - prod(left) ** (1.0 / len(left))) if left else 0.0


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
        options: what each is, and its change.
        refused: collects why the others do not fit.
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
    """The option that gains most; of those that gain as much, the most liked.

    As much: to within half of `min_gain_percent` of the step that the best one gives (TOLERATED), so that the
    model with any of them made is asked for no other.
    """
    if not options:
        return None
    best = max(worth(option) for option in options)
    left_out = TOLERATED * context.settings.min_gain_percent * max(1.0 - best / 100.0, 0.0)
    return max(
        (option for option in options if worth(option) >= best - left_out), key=lambda o: liked(o.what)
    )
