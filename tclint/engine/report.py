"""What a run gives back: entries with their metrics, findings, what was skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tclint.config.settings import Settings
from tclint.core.finding import LEVEL_ORDER, Finding, Location
from tclint.core.rule import CRASH_CODE
from tclint.core.units import plural

if TYPE_CHECKING:
    from tclint.analysis.what_if.comparisons import BatchLimits, Comparison
    from tclint.cost.rows import Bound, Memory
    from tclint.graph.lowering.work import Gap
    from tclint.graph.ops import Assumption, Graph
    from tclint.source.syntax.discovery import Skipped


@dataclass(frozen=True, slots=True)
class Metrics:
    """Predicted kernel time of one entry on one GPU; shares are percent of the step."""

    gpu: str
    step_time_us: float
    forward_time_us: float
    backward_time_us: float
    optimizer_time_us: float
    readiness_percent: float
    """Share of the step in ops that run efficiently on Tensor Cores."""
    tensor_core_time_percent: float
    amdahl_ceiling: float
    """Largest possible speed-up if only the work on Tensor Cores got faster."""
    uncertainty_percent: float
    calibrated: bool
    step_time_range_us: tuple[float, float] | None = None
    """Of the step at all plausible values of what was guessed, where these are more than a factor of two
    apart."""
    step_flops: int | None = None
    """Forward and backward; None: not computed."""
    aligned_flops_percent: float | None = None
    """Share of the matrix products' FLOPs whose contiguous dims are multiples of what Tensor Cores want;
    None where the precision has no such multiple."""
    memory_bytes: int | None = None
    """Parameters, gradients, optimizer state and activations, without the allocator's own."""
    memory: Memory | None = None
    """What those bytes consist of."""
    batch_limits: BatchLimits | None = None
    """The largest batches that fit this GPU."""
    launch_count: int | None = None
    """Kernels that the host launches in one step."""
    host_time_us: float | None = None
    """What the host needs for that, roughly; in no other time."""
    bound: Bound | None = None
    """Whether the kernels or the host that launches them take longer."""
    communication_bytes: int | None = None
    """What the GPU sends in a step that is spread over several; None where it is not."""
    communication_bound_us: float | None = None
    """What its link needs for that at its full rate, at least; in no other time."""
    step_time_fixed_us: float | None = None
    """The step with the fixes of all listed findings made together; None where none has a priced fix."""
    readiness_fixed_percent: float | None = None
    """Readiness of that step."""
    measured_step_time_us: float | None = None
    """The step as the user measured it; what a run takes is of this one."""
    run_steps: int | None = None
    """Steps of a run; None: not given, and neither is what follows."""
    run_gpu_hours: float | None = None
    run_gpu_hours_fixed: float | None = None
    """With all listed fixes made."""
    run_price: float | None = None
    run_price_fixed: float | None = None
    step_time_us_by_precision: Mapping[str, float] = field(default_factory=dict)
    """The same step in every precision that the GPU's units compute in."""


@dataclass(frozen=True, slots=True)
class PlannedFix:
    """A fix in the order in which fixes gain most, made after those before it."""

    code: str
    name: str
    location: Location
    step_time_us: Mapping[str, float]
    """With it and those before it made, by GPU id."""
    readiness_percent: Mapping[str, float]
    needs_others: bool
    """Whether it gains less than `min_gain_percent` on the model as it is."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model that was built, traced and priced."""

    target: str
    model: str
    """Class name of the root module."""
    mode: str
    precision: str
    parameters: int
    flops: int
    """Forward, 2 per multiply-add."""
    op_count: int
    metrics: dict[str, Metrics]
    """By GPU id."""
    assumptions: tuple[Assumption, ...]
    not_analysed: tuple[Gap, ...]
    seconds: dict[str, float]
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Name, dtype and shape of every tensor the model was called with."""
    graph_hash: str = ""
    """What the model computes (tclint.engine.model_facts.graph_hash)."""
    torch_version: str = ""
    """The version of the torch that traced it."""
    comparisons: tuple[Comparison, ...] = ()
    """The tables that `compare` asks for."""
    input_set: str = ""
    """Which of several sets of inputs; it stands in brackets behind the target as well."""
    is_worst_case: bool = False
    """Whether this is the one, among several sets of inputs of a target, that uses Tensor Cores least."""
    captured_output: str = ""
    """What the target's code printed."""
    fixes_made: int = 0
    """Findings whose fixes are in `step_time_fixed_us`."""
    plan: tuple[PlannedFix, ...] = ()
    """Those fixes that change the step, in the order in which to make them."""
    settings: Settings | None = field(default=None, compare=False, repr=False)
    """What it was linted under: those of the run, with what a declared model says for itself."""
    graph: Graph | None = field(default=None, compare=False, repr=False)
    """What was traced, for reports that show every op; no other result rests on it."""


@dataclass(frozen=True, slots=True)
class EntryError:
    """A target that could not be linted."""

    target: str
    message: str
    details: str = ""
    captured_output: str = ""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C after some targets were finished; `report` is of those."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found; paths are relative to the working directory, POSIX."""

    settings: Settings
    entries: tuple[Entry, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Ranked: errors first, then by predicted gain."""
    below_min_gain: tuple[Finding, ...] = ()
    """Counted in the summary, not listed."""
    suppressed: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    errors: tuple[EntryError, ...] = ()
    source_files: int = 0
    """Files that the source pass considered."""
    baselined: tuple[Finding, ...] = ()
    """Known from the baseline: counted, not listed."""
    paths: tuple[str, ...] = ()
    """Those files without the skipped ones, absolute."""
    digests: Mapping[str, bytes] = field(default_factory=dict)
    """SHA-256 of the source files with findings, by absolute path, as they were read; of a saved report, what
    it says of them."""
    made_with: Mapping[str, Any] = field(default_factory=dict)
    """For a saved report: 'tool' and 'provenance' as in its JSON."""
    contents: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """By absolute path, bytes linted in place of those on the disk: what an editor has not saved."""

    def __repr__(self) -> str:
        models = plural(len(self.entries), "model")
        errors = f", {plural(len(self.errors), 'error')}" if self.errors else ""
        return f"<Report: {models}, {plural(len(self.findings), 'finding')}{errors}>"

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings at or above `fail_on`, 2 a target or a rule failed."""
        if self.errors or any(finding.code == CRASH_CODE for finding in self.findings):
            return 2
        if self.settings.fail_on == "never":
            return 0
        threshold = LEVEL_ORDER[self.settings.fail_on]
        return int(any(LEVEL_ORDER[finding.level] <= threshold for finding in self.findings))
