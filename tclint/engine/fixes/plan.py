"""The plan of a model's fixes, as data: steps in their order, their edits, what is proved, what is left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.text import printable

SCHEMA_VERSION = "1"


@dataclass(frozen=True, slots=True)
class TextEdit:
    """One change of a file's text; lines and columns count from 1, columns in characters, ends exclusive."""

    path: str
    """From the working directory, POSIX."""
    line: int
    column: int
    end_line: int
    end_column: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class ByHand:
    """What is left to the user, and where."""

    what: str
    path: str = ""
    line: int = 0
    text: str = ""
    """What stands there."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One finding's fix, made after those before it."""

    code: str
    name: str
    fingerprint: str
    """The finding's fingerprint, as in the report."""
    path: str
    line: int
    module_path: str
    message: str
    step_time_us: Mapping[str, float]
    """By GPU, with it and those before it made: of the edited copy as it was traced, else as predicted."""
    gain_percent: Mapping[str, float]
    """By GPU, of the step as it is before any fix."""
    sizes: tuple[tuple[int, int], ...] = ()
    """Distinct (old, new) sizes, those that its edits give."""
    unlocks: tuple[str, ...] = ()
    """Fingerprints of steps that alone would gain too little, and gain enough once this one is made."""
    edits: tuple[TextEdit, ...] = ()
    by_hand: tuple[ByHand, ...] = ()
    notes: tuple[ByHand, ...] = ()
    """What else of the project has to do with its edits: other readers, weights that are loaded."""
    cuts_us: Mapping[str, float] = field(default_factory=dict)
    """GPU id -> what cutting padded outputs back takes of the step, where that is needed."""
    proved: bool = False
    reason: str = ""
    """Why it is not proved; then it has no edits."""
    parameters_added: int = 0


@dataclass(frozen=True, slots=True)
class FixPlan:
    """The fixes of one target."""

    target: str
    step_time_us: Mapping[str, float]
    """By GPU, of the model as it is."""
    steps: tuple[PlanStep, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    """By path: SHA-256 of the files that edits change, as they were read."""
    also_fixed: tuple[str, ...] = ()
    """Fingerprints of further findings that the edits fix, without a gain of their own."""
    weights: Any = None
    """How saved weights follow (tclint.graph.weights.plan.WeightPlan.to_json); None: no size changes."""

    @property
    def edits(self) -> tuple[TextEdit, ...]:
        """The edits of all proved steps, without repetition."""
        return tuple(dict.fromkeys(edit for step in self.steps if step.proved for edit in step.edits))

    def to_json(self) -> dict[str, Any]:
        data = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        if self.weights is None:
            del data["weights"]
        return data

    @classmethod
    def from_json(cls, data: Any) -> FixPlan:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is no plan of this schema version.
        """
        if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"no plan of fixes of schema version {SCHEMA_VERSION}")
        try:
            rest = {key: value for key, value in data.items() if key not in ("schema_version", "steps")}
            rest["also_fixed"] = tuple(rest["also_fixed"])
            return cls(**rest, steps=tuple(_step(step) for step in data["steps"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no plan of fixes: {error!r}") from error


def _step(data: Mapping[str, Any]) -> PlanStep:
    return PlanStep(
        **{
            **data,
            "sizes": tuple((int(old), int(new)) for old, new in data["sizes"]),
            "unlocks": tuple(data["unlocks"]),
            "edits": tuple(TextEdit(**edit) for edit in data["edits"]),
            "by_hand": tuple(ByHand(**item) for item in data["by_hand"]),
            "notes": tuple(ByHand(**item) for item in data.get("notes", ())),
        }
    )


def read_plan(path: str) -> FixPlan:
    """The plan in a file.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return FixPlan.from_json(json.load(file))
    except OSError as error:
        raise UsageError(f"Cannot read {printable(path)!r}: {error.strerror or error}.") from error
    except ValueError as error:
        raise UsageError(
            f"{printable(path)!r} is not a plan that 'tclint fix --plan' of this version wrote ({error}); "
            "write it again."
        ) from error
