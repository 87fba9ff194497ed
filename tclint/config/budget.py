"""Reads `[tool.tclint.budget]`: what a change may cost before `tclint diff` fails."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tclint.config.kinds import COUNT_FROM_ZERO, PERCENT
from tclint.core.errors import closest


@dataclass(frozen=True, slots=True)
class Budget:
    """How much worse a model may get, in the scenario that it is run in."""

    step_percent: float = 1.0
    """Of the old step time."""
    readiness_points: float = 1.0
    """Percentage points, where the step gets no faster."""
    memory_percent: float = 5.0
    """Of the old memory; padding takes some."""
    new_findings: int = 0
    """Of the level that fails, or above."""


DEFAULT_BUDGET = Budget()

BUDGET_KEYS = {
    "step": ("step_percent", PERCENT, "percent by which the step of a model may get slower"),
    "readiness": (
        "readiness_points",
        PERCENT,
        "points by which its readiness may fall, where the step gets no faster",
    ),
    "memory": ("memory_percent", PERCENT, "percent by which its memory may grow"),
    "new-findings": ("new_findings", COUNT_FROM_ZERO, "new findings of the level that fails, or above"),
}
"""By key: field of Budget, kind, and what it means."""


def parse_budget(value: object, base: Budget) -> Budget:
    """The table of a configuration file on top of the one that it extends.

    Raises:
        ValueError: it is no table, or has a key or value that it cannot have.
    """
    if not isinstance(value, dict):
        raise ValueError("expects a table such as [tool.tclint.budget] with step = 2")
    fields: dict[str, object] = {}
    for key, given in value.items():
        if key not in BUDGET_KEYS:
            hint = (
                closest(key.replace("_", "-"), tuple(BUDGET_KEYS))
                or f" Its keys are {', '.join(BUDGET_KEYS)}."
            )
            raise ValueError(f"cannot set {key!r}.{hint}")
        field, kind, _ = BUDGET_KEYS[key]
        try:
            fields[field] = kind.parse(given)
        except ValueError as error:
            raise ValueError(f"has {key!r}, which {error}") from None
    return replace(base, **fields)  # type: ignore[arg-type]
