"""The report of a run: entries with their metrics, findings, skipped files."""

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
    """The speed-up of the step if its Tensor Core kernels took no time and all others stayed as they are."""
    uncertainty_percent: float
    calibrated: bool
    step_time_range_us: tuple[float, float] | None = None
    """The range of the step time over all plausible values of guessed sizes; None if it spans less than a
    factor of two."""
    step_flops: int | None = None
    """FLOPs of forward and backward; None: not computed."""
    aligned_flops_percent: float | None = None
    """The percentage of the matrix products' FLOPs with aligned contiguous dims; None if the precision needs
    no alignment."""
    memory_bytes: int | None = None
    """Bytes of parameters, gradients, optimizer state and activations, without the allocator's overhead."""
    memory: Memory | None = None
    """The parts of `memory_bytes`."""
    batch_limits: BatchLimits | None = None
    """The largest batches that fit this GPU."""
    launch_count: int | None = None
    """The number of kernels that the host launches in one step."""
    host_time_us: float | None = None
    """The approximate time in which the host launches them; no other time includes it."""
    bound: Bound | None = None
    """Whether the kernels or the host that launches them take longer."""
    communication_bytes: int | None = None
    """The bytes that the GPU sends in a step spread over several GPUs; None for a single GPU."""
    communication_bound_us: float | None = None
    """The least time that its link needs for them, at full rate; no other time includes it."""
    tensor_parallel_sums: int | None = None
    """The all-reduces of a step whose layers are split over GPUs; None if they are not."""
    tensor_parallel_bytes: int | None = None
    """The bytes that the GPU sends for them."""
    tensor_parallel_bound_us: float | None = None
    """The least time that its link needs for those, at full rate; no other time includes it."""
    step_time_fixed_us: float | None = None
    """The step time with the fixes of all listed findings made together; None if none has a priced fix."""
    readiness_fixed_percent: float | None = None
    """Readiness of that step."""
    step_time_cut_back_us: float | None = None
    """The same with padded outputs cut back to their size, as `tclint fix` does; None if none is padded."""
    measured_step_time_us: float | None = None
    """The step time that the user measured; the costs of a run are based on it."""
    run_steps: int | None = None
    """The steps of a run; None if they are not given, and then the following fields are None too."""
    run_gpu_hours: float | None = None
    run_gpu_hours_fixed: float | None = None
    """GPU-hours of the run with all listed fixes made."""
    run_price: float | None = None
    run_price_fixed: float | None = None
    step_time_us_by_precision: Mapping[str, float] = field(default_factory=dict)
    """The step time in every precision that the GPU's units support."""


@dataclass(frozen=True, slots=True)
class PlannedFix:
    """One fix of a plan, which orders fixes by gain; it is made after those before it."""

    code: str
    name: str
    location: Location
    step_time_us: Mapping[str, float]
    """GPU id -> the step time with this fix and those before it made."""
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
    """FLOPs of the forward, 2 per multiply-add."""
    op_count: int
    metrics: dict[str, Metrics]
    """GPU id -> metrics."""
    assumptions: tuple[Assumption, ...]
    not_analysed: tuple[Gap, ...]
    seconds: dict[str, float]
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Name, dtype and shape of every tensor that the model was called with."""
    graph_hash: str = ""
    """The hash of the model's computation (tclint.engine.model_pass.graph_hash)."""
    torch_version: str = ""
    """The version of torch that traced it."""
    comparisons: tuple[Comparison, ...] = ()
    """The tables that `compare` asks for."""
    input_set: str = ""
    """The name of its set of inputs if there are several; the target also ends with it, in brackets."""
    is_worst_case: bool = False
    """Whether this is the one, among several sets of inputs of a target, that uses Tensor Cores least."""
    captured_output: str = ""
    """The output that the target's code printed."""
    fixes_made: int = 0
    """The number of findings whose fixes are in `step_time_fixed_us`."""
    plan: tuple[PlannedFix, ...] = ()
    """The fixes that change the step, in the order in which to make them."""
    settings: Settings | None = field(default=None, compare=False, repr=False)
    """The settings under which it was linted: those of the run, with a declared model's own on top."""
    graph: Graph | None = field(default=None, compare=False, repr=False)
    """The traced graph, for reports that show every op; no other result depends on it."""


@dataclass(frozen=True, slots=True)
class EntryError:
    """A target that could not be linted."""

    target: str
    message: str
    details: str = ""
    captured_output: str = ""


class Interrupted(KeyboardInterrupt):
    """Raised on Ctrl-C after some targets were finished; `report` covers those."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run; paths are relative to the working directory, in POSIX form."""

    settings: Settings
    entries: tuple[Entry, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Ranked: errors first, then by predicted gain."""
    below_min_gain: tuple[Finding, ...] = ()
    """Findings that gain too little to be listed; the summary counts them."""
    suppressed: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    errors: tuple[EntryError, ...] = ()
    source_files: int = 0
    """The number of files that the source pass considered."""
    baselined: tuple[Finding, ...] = ()
    """Findings in the baseline, which are counted but not listed."""
    paths: tuple[str, ...] = ()
    """Absolute paths of the considered files that were not skipped."""
    digests: Mapping[str, bytes] = field(default_factory=dict)
    """Absolute path of a source file with findings -> SHA-256 of the file as it was read; a saved report
    states them itself."""
    models_trained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Script with findings -> targets of the models that its program trains, the largest first."""
    held_back: tuple[str, ...] = ()
    """Sentences on findings whose fixes need newer releases than the project allows."""
    made_with: Mapping[str, Any] = field(default_factory=dict)
    """For a saved report: 'tool' and 'provenance' as in its JSON."""
    contents: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Absolute path -> bytes linted instead of those on the disk, such as an editor's unsaved text."""

    def __repr__(self) -> str:
        models = plural(len(self.entries), "model")
        errors = f", {plural(len(self.errors), 'error')}" if self.errors else ""
        return f"<Report: {models}, {plural(len(self.findings), 'finding')}{errors}>"

    @property
    def exit_code(self) -> int:
        """0 if clean, 1 if there are findings at or above `fail_on`, 2 if a target or a rule failed."""
        if self.errors or any(finding.code == CRASH_CODE for finding in self.findings):
            return 2
        if self.settings.fail_on == "never":
            return 0
        threshold = LEVEL_ORDER[self.settings.fail_on]
        return int(any(LEVEL_ORDER[finding.level] <= threshold for finding in self.findings))
