"""A trace beside the model that it is of: predictions and findings with what was measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tclint.config.precisions import precision_title
from tclint.config.settings import Precision, Settings
from tclint.core.errors import TargetError, UsageError
from tclint.core.finding import Finding
from tclint.core.target import is_model_target
from tclint.core.text import printable
from tclint.core.units import percent_text, time_text
from tclint.cost.estimate import Estimate
from tclint.cost.gpu import Gpu, load_gpu
from tclint.engine.check import Traces, check
from tclint.engine.report import Report
from tclint.graph.ops import Op
from tclint.profile.alignment import Alignment, align
from tclint.profile.kernel_names import MATRIX_KINDS, kernel_name
from tclint.profile.predicted import float32_precision
from tclint.profile.profile import RankProfile
from tclint.profile.trace import Trace
from tclint.profile.works import dtype_of

_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
POOR_MATCH_PERCENT = 50.0
"""Where less of the time matches, trace and model are hardly of the same run."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of the model, measured and predicted, in microseconds per step."""

    op: Op
    measured_us: float
    predicted_us: float


@dataclass(frozen=True, slots=True)
class MeasuredFinding:
    """What the ops that a finding speaks of took, in microseconds per step."""

    time_us: float
    predicted_us: float
    """The predicted time of the same ops; the cost in the finding's effect covers those without a match as
    well."""
    ops: int
    matched_ops: int


@dataclass(frozen=True, slots=True)
class MeasuredFix:
    """A step without and with a finding's fix, in microseconds of kernel time."""

    code: str
    change: str
    """'layout channels_last'."""
    before_us: float
    after_us: float
    predicted_before_us: float
    predicted_after_us: float

    @property
    def text(self) -> str:
        return (
            f"{self.code} with its fix ({self.change}): measured {_change(self.before_us, self.after_us)}; "
            f"predicted {_change(self.predicted_before_us, self.predicted_after_us)}"
        )


def _change(before_us: float, after_us: float) -> str:
    gain = 100.0 * (before_us - after_us) / before_us if before_us else 0.0
    return f"{time_text(before_us)} -> {time_text(after_us)} a step ({percent_text(gain)} gained)"


@dataclass(frozen=True, slots=True)
class Beside:
    """A trace and a model's report, side by side."""

    profile: RankProfile
    report: Report
    alignment: Alignment
    estimate: Estimate
    said: tuple[str, ...]
    """How the model was priced, as the trace showed it; or how it was run."""
    fix: MeasuredFix | None = None

    @property
    def rows(self) -> list[OpRow]:
        """Matched ops, the longest first."""
        ops = {op.index: op for op in self.estimate.ops}
        rows = [
            OpRow(ops[index], time.time_us, self.estimate.time_of_us([index]))
            for index, time in self.alignment.measured.items()
        ]
        return sorted(rows, key=lambda row: -row.measured_us)

    @property
    def predicted_us(self) -> float:
        """The predicted time of the matched ops."""
        return self.estimate.time_of_us(self.alignment.measured)

    @property
    def error_percent(self) -> float:
        """The error relative to `predicted_us`; 0 where nothing was matched."""
        matched_us = self.alignment.matched_us
        return 100.0 * (self.predicted_us / matched_us - 1.0) if matched_us else 0.0

    def measured(self, finding: Finding) -> MeasuredFinding | None:
        """None where no op of the finding is known, or none was matched."""
        indices = finding.effect.op_indices or self._ops_at(finding)
        matched = [index for index in indices if index in self.alignment.measured]
        if not matched:
            return None
        return MeasuredFinding(
            sum(self.alignment.measured[index].time_us for index in matched),
            self.estimate.time_of_us(matched),
            len(indices),
            len(matched),
        )

    def _ops_at(self, finding: Finding) -> tuple[int, ...]:
        path = finding.location.module_path
        return tuple(op.index for op in self.estimate.ops if path and op.module_path == path)


def beside(
    profiles: Sequence[RankProfile],
    target: str,
    settings: Settings,
    given: Collection[str] = (),
    on_progress: Callable[[str], None] | None = None,
    traces: Traces | None = None,
) -> list[Beside]:
    """Trace and lint the model, and align the trace of every rank with it.

    Args:
        profiles: ranks that ran on one kind of GPU. The first tells how the model ran.
        given: fields of the settings that were given for this run; GPU, mode and precision are the trace's
            where they were not, whatever a configuration file has.
        traces: of the target, where it has been traced before.

    Raises:
        UsageError: the target is no model, or the GPU is unknown.
        TargetError: the model could not be built or traced.
    """
    from tclint.analysis.graph_context import GraphContext

    if not is_model_target(target):
        raise UsageError(
            f"{target!r} is not a model target; write 'path/file.py:callable' or 'package.module:callable'."
        )
    settings, said = _as_recorded(profiles[0], settings, given)
    report = check([target], settings, on_progress, cache=traces)
    if report.errors:
        error = report.errors[0]
        raise TargetError(error.message, details=error.details, captured_output=error.captured_output)
    entry = report.entries[0]
    assert entry.graph is not None
    context = GraphContext(entry.graph, entry.settings or settings, target)
    estimate = context.estimate(context.scenarios[0])
    ops = [op for op in estimate.ops if estimate.rows_of(op.index)]
    return [Beside(profile, report, align(profile.trace, ops), estimate, tuple(said)) for profile in profiles]


def _as_recorded(
    profile: RankProfile, settings: Settings, given: Collection[str]
) -> tuple[Settings, list[str]]:
    """GPU, mode and precision as the trace shows them, where they were not given."""
    said = []
    summary = profile.summary
    gpu = recorded_gpu(profile, settings.gpus[:1] if "gpus" in given else ())
    settings = replace(settings, gpus=(gpu.id,))
    if "gpus" not in given:
        said.append(f"GPU {gpu.id}")
    if "mode" not in given:
        settings = replace(settings, mode="train" if summary.backward_us else "infer")
        said.append(f"mode {settings.mode}")
    if "precision" not in given:
        settings = replace(settings, precision=recorded_precision(profile.trace))
        said.append(precision_title(settings.precision))
    return settings, said


def recorded_gpu(profile: RankProfile, given: Sequence[str] = ()) -> Gpu:
    """The GPU that was given, else the one that the trace names.

    Raises:
        UsageError: it is unknown.
    """
    if given:
        return load_gpu(given[0])
    try:
        return load_gpu(profile.summary.gpu)
    except UsageError:
        raise UsageError(
            f"The trace is from {printable(profile.summary.gpu)!r}, which tclint has no specifications for; "
            "name the closest GPU with --gpu ('tclint gpus' lists them)."
        ) from None


def recorded_precision(trace: Trace) -> Precision:
    """What most of the matrix work ran in; casts of weights tell autocast from a converted model."""
    times: dict[str, float] = {}
    for kernel in trace.kernels:
        name = kernel_name(kernel.name)
        if name.kind in MATRIX_KINDS:
            dtype = dtype_of(kernel.operator) or _DTYPES.get(name.precision or "", "")
            times[dtype] = times.get(dtype, 0.0) + kernel.time_us
    most = max(times, key=lambda dtype: times[dtype], default="")
    if most == "float16":
        return "fp16" if _has_autocast(trace) else "pure-fp16"
    if most == "bfloat16":
        return "bf16" if _has_autocast(trace) else "pure-bf16"
    return float32_precision(trace)


def _has_autocast(trace: Trace) -> bool:
    """A linear layer or a convolution that casts what it is given does so under autocast."""
    layers = ("aten::linear", "aten::conv2d", "aten::conv1d", "aten::conv3d", "aten::matmul")
    return any(
        operator.name == "aten::to" and operator.parent is not None and operator.parent.name in layers
        for operator in trace.operators
    )
