"""What tclint reports: a finding, where it is, what it costs, and how it is fixed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tclint.core.text import without_lines

Level = Literal["error", "warning", "info"]
Confidence = Literal["high", "medium", "low"]

LEVEL_ORDER: dict[Level, int] = {"error": 0, "warning": 1, "info": 2}

ENGINE_FAMILY = "TCL"
"""How codes begin that no rule has: what is reported of files, comments and rules themselves."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file; lines and columns count from 1, columns in characters."""

    path: str
    """Absolute while rules run; relative to the working directory, POSIX, in a Report."""
    line: int
    column: int = 1
    end_line: int | None = None
    end_column: int | None = None
    module_path: str | None = None
    """Qualified name of the layer in the model, for findings of a traced graph."""
    cell: int | None = None
    """For a notebook: the number of the cell, from 1, text cells included; `line` is the file's."""
    cell_line: int | None = None
    """The line in that cell, from 1."""


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that a finding rests on, with a sentence saying how."""

    location: Location
    message: str
    is_alike: bool = False
    """The same problem there: a place that could have a finding of its own, and is silenced by itself."""


@dataclass(frozen=True, slots=True)
class GpuEffect:
    """What a finding is predicted to cost and its fix to gain on one GPU, per step."""

    cost_us: float
    """Time of the kernels concerned as they are."""
    gain_us: float
    """Step time before the fix minus after it; negative when the fix loses."""
    gain_percent: float
    """gain_us as a share of the step."""
    uncertainty_percent: float
    """The uncertainty of the estimates under gain_us, from the calibration's held-out errors."""
    run_gpu_hours: float | None = None
    """What the fix saves in a run, where its number of steps is known."""
    run_price: float | None = None
    """The same in money, where a GPU-hour has a price."""
    calibrated: bool = True
    """False where the GPU's constants are inherited from its generation."""
    elsewhere_us: Mapping[str, float] = field(default_factory=dict)
    """By operator, the largest first: the parts of gain_us in other kernels than those of cost_us."""

    felt_us: float | None = None
    """How much shorter the step gets, if launching the kernels takes longer than running them before or after
    the fix; None: gain_us."""

    @property
    def felt_percent(self) -> float:
        """The share of the step that felt_us is."""
        if self.felt_us is None or not self.gain_us:
            return self.gain_percent
        return self.gain_percent * self.felt_us / self.gain_us

    @property
    def is_within_error(self) -> bool:
        """Whether the gain is smaller than the error of the times it is a difference of."""
        return abs(self.gain_us) < self.cost_us * self.uncertainty_percent / 100.0


@dataclass(frozen=True, slots=True)
class Effect:
    """Predicted effect per GPU id, or the reason why it is unknown; exactly one of the two."""

    per_gpu: Mapping[str, GpuEffect] = field(default_factory=dict)
    unknown: str | None = None
    op_indices: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """Ops of the traced model whose time is `cost_us`, for what was measured of them; empty: not known."""

    @property
    def best_gain_percent(self) -> float | None:
        """The largest gain over the GPUs; None where the effect is unknown."""
        return max((effect.gain_percent for effect in self.per_gpu.values()), default=None)

    @property
    def mean_gain_percent(self) -> float:
        """The gain, in percent, of the geometric mean of the step times over the GPUs, for which a change is
        chosen.

        With this mean, two changes gain the same one after the other as together, in any order.
        """
        left = [max(1.0 - gain.gain_percent / 100.0, 0.0) for gain in self.per_gpu.values()]
        return 100.0 * (1.0 - math.prod(left) ** (1.0 / len(left))) if left else 0.0

    @property
    def best_felt_percent(self) -> float | None:
        """The largest felt_percent over the GPUs; None where the effect is unknown."""
        return max((effect.felt_percent for effect in self.per_gpu.values()), default=None)

    @property
    def best_gain_us(self) -> float | None:
        return max((effect.gain_us for effect in self.per_gpu.values()), default=None)


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text between two (line, column) positions, counted from 1, end exclusive."""

    path: str
    start: tuple[int, int]
    end: tuple[int, int]
    replacement: str


@dataclass(frozen=True, slots=True)
class Fix:
    """How to fix a finding: advice in one sentence, and edits where a machine can make them."""

    advice: str
    safety: Literal["safe", "unsafe", "advice"] = "advice"
    """'safe' repairs what the finding says is wrong and changes nothing else; 'unsafe' may change results,
    checkpoints or speed, or rests on more than the file shows; 'advice' has no edits."""
    edits: tuple[Edit, ...] = ()
    needs: str = ""
    """The oldest release that it works with, such as 'torch 2.3', where its names do not tell."""
    places: Mapping[str, tuple[Location, ...]] = field(default_factory=dict, compare=False, repr=False)
    """By role: where the rule saw what edits concern, for the codemod that writes them; no report has it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem at one place."""

    code: str
    name: str
    level: Level
    confidence: Confidence
    message: str
    """One or two sentences without a trailing newline: what is wrong here, with its numbers."""
    location: Location
    related: tuple[Related, ...] = ()
    effect: Effect = field(default_factory=lambda: Effect(unknown="not priced"))
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """The numbers and facts it rests on; JSON values."""
    fix: Fix | None = None
    target: str | None = None
    """The entry (as typed) whose trace showed it; None for source findings."""
    also_targets: tuple[str, ...] = ()
    """The other entries that show the same, in a Report."""
    identity: str = ""
    """What tells this finding from others of its rule in its file without line numbers; defaults to the
    module path, else the message."""
    group: str = field(default="", compare=False)
    """What findings of its rule in its file share that are reported as one, though each is silenced on its
    own line; '' for one that is reported by itself."""
    change: object = field(default=None, compare=False, repr=False)
    """What the fix does to the traced model (a tclint.analysis.change.Change), to price several together;
    None in a Report, and where the gain is not that of the same model and batch."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Every entry that it speaks of; empty for source findings."""
        return (self.target, *self.also_targets) if self.target is not None else ()

    @property
    def is_about_speed(self) -> bool:
        """Whether it would have a price if everything were known: what is wrong altogether has none."""
        has_price = self.effect.best_gain_percent is not None
        return has_price or not (self.level == "error" or self.code.startswith(ENGINE_FAMILY))

    def has_edits(self, safety: Literal["safe", "unsafe"]) -> bool:
        """Whether its fix is written out, and is of that kind."""
        return self.fix is not None and self.fix.safety == safety and bool(self.fix.edits)

    @property
    def fingerprint(self) -> str:
        """Stable across edits elsewhere in the file; made of code, path and identity, 16 hex digits."""
        identity = self.identity or self.location.module_path or without_lines(self.message)
        parts = "\0".join((self.code, self.location.path, identity))
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def key(self) -> str | tuple[str, str, int]:
        """What tells it from others of a model: its fingerprint, or its line where that is of a message."""
        if self.identity or self.location.module_path:
            return self.fingerprint
        return self.code, self.location.path, self.location.line
