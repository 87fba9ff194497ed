"""Reads `[tool.tclint.budget]`: what a change may cost, and what a declared model may cost at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tclint.config.kinds import COUNT_FROM_ZERO, PERCENT
from tclint.core.errors import closest
from tclint.core.target import is_model_target

Limit = tuple[tuple[str, float], ...]
"""By GPU as it is named in the file; '' for all."""


@dataclass(frozen=True, slots=True)
class ModelBudget:
    """What a declared model may cost, in the scenario that it is linted in."""

    target: str
    step_ms: Limit = ()
    readiness: Limit = ()
    memory_gib: Limit = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """How much worse a model may get, in the scenario that it is run in."""

    step_percent: float = 1.0
    """The allowed growth, relative to the old step time."""
    readiness_points: float = 1.0
    """Percentage points, where the step gets no faster."""
    memory_percent: float = 5.0
    """The allowed growth, relative to the old memory; padding takes some."""
    new_findings: int = 0
    """How many new findings are allowed at the failing level or above."""
    models: tuple[ModelBudget, ...] = ()
    """What models may cost whatever they were before."""


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


MODEL_BUDGET_KEYS = {
    "step-ms": ("step_ms", "predicted milliseconds that a step may take"),
    "readiness": ("readiness", "percent that its readiness must be at least"),
    "memory-gib": ("memory_gib", "GiB that a step may keep in memory"),
}
"""By key: field of ModelBudget, and what it means."""


def parse_budget(value: object, base: Budget) -> Budget:
    """The table of a configuration file on top of the one that it extends.

    Raises:
        ValueError: it is no table, or has a key or value that it cannot have.
    """
    if not isinstance(value, dict):
        raise ValueError("expects a table such as [tool.tclint.budget] with step = 2")
    fields: dict[str, object] = {}
    models = {model.target: model for model in base.models}
    for key, given in value.items():
        if is_model_target(key):
            models[key] = _parse_model(key, given)
            continue
        if key not in BUDGET_KEYS:
            raise ValueError(f"cannot set {key!r}.{_hint(key, BUDGET_KEYS)}")
        field, kind, _ = BUDGET_KEYS[key]
        try:
            fields[field] = kind.parse(given)
        except ValueError as error:
            raise ValueError(f"has {key!r}, which {error}") from None
    return replace(base, **fields, models=tuple(models.values()))  # type: ignore[arg-type]


def _hint(key: str, known: Mapping[str, object]) -> str:
    return closest(key.replace("_", "-"), tuple(known)) or f" Its keys are {', '.join(known)}."


def _parse_model(target: str, value: object) -> ModelBudget:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"expects a table for {target!r}, such as {{ step-ms = 30 }}")
    fields: dict[str, Limit] = {}
    for written, given in value.items():
        key = written.replace("_", "-")
        if key not in MODEL_BUDGET_KEYS:
            raise ValueError(f"cannot set {written!r} of {target!r}.{_hint(written, MODEL_BUDGET_KEYS)}")
        by_gpu = given if isinstance(given, dict) else {"": given}
        if not by_gpu or not all(_is_size(number) for number in by_gpu.values()):
            raise ValueError(
                f"has {target!r}, whose {key!r} expects a number above 0, or one per GPU: "
                "{ a100 = 30, h100 = 15 }"
            )
        fields[MODEL_BUDGET_KEYS[key][0]] = tuple((gpu, float(number)) for gpu, number in by_gpu.items())
    return ModelBudget(target, **fields)


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
