"""The pipeline: targets -> graphs and sources -> rules -> findings -> a ranked report.

Read this file first: it is the whole of tclint in one page. It imports torch never (models are traced in
worker processes) and libcst, NumPy and the rules only when there is something for them to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tclint.baseline import Baseline
from tclint.config import PRECISIONS, Settings
from tclint.errors import TargetError, UsageError
from tclint.finding import LEVEL_ORDER, Finding, Location
from tclint.input_sets import with_worst_marked, worst_of_sets
from tclint.registry import Selection
from tclint.rule import CRASH_CODE, GraphRule, Rule, SourceRule, apply_rule
from tclint.suppressions import apply_suppressions
from tclint.target import is_model_target

if TYPE_CHECKING:
    from tclint.context import GraphContext
    from tclint.cost.result import Memory
    from tclint.graph import Assumption, Graph
    from tclint.graph.work import Gap
    from tclint.source import Skipped
    from tclint.trace_cache import TraceCache
    from tclint.tracing import TraceResult
    from tclint.what_if import BatchLimits, Comparison

Progress = Callable[[str], None]


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
    launch_time_us: float | None = None
    """What the host is assumed to need for that; in no other time."""
    step_time_fixed_us: float | None = None
    """The step with the fixes of all listed findings made together; None where none has a priced fix."""
    readiness_fixed_percent: float | None = None
    """Readiness of that step."""
    step_time_us_by_precision: Mapping[str, float] = field(default_factory=dict)
    """The same step in every precision that the GPU's units compute in."""


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
    """What the model computes (tclint.model_facts.graph_hash)."""
    torch_version: str = ""
    """Of the torch that traced it."""
    comparisons: tuple[Comparison, ...] = ()
    """The tables that `compare` asks for."""
    input_set: str = ""
    """Which of several sets of inputs; it stands in brackets behind the target as well."""
    is_worst_case: bool = False
    """Of the several sets of inputs of a target, the one on which Tensor Cores are used least."""
    captured_output: str = ""
    """What the target's code printed."""
    fixes_made: int = 0
    """Findings whose fixes are in `step_time_fixed_us`."""
    graph: Graph | None = field(default=None, compare=False, repr=False)
    """What was traced, for reports that show every op; no other result rests on it."""


@dataclass(frozen=True, slots=True)
class EntryError:
    """A target that could not be linted."""

    target: str
    message: str
    details: str = ""
    captured_output: str = ""


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
    """SHA-256 of the source files with findings, by absolute path, as they were read."""

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings at or above `fail_on`, 2 a target or a rule failed."""
        if self.errors or any(finding.code == CRASH_CODE for finding in self.findings):
            return 2
        if self.settings.fail_on == "never":
            return 0
        threshold = LEVEL_ORDER[self.settings.fail_on]
        return int(any(LEVEL_ORDER[finding.level] <= threshold for finding in self.findings))

    def to_json(self) -> str:
        """The JSON report (schema: `tclint/report/schema.json`)."""
        from tclint.report.json import render

        return render(self)


def check(
    targets: Sequence[str],
    settings: Settings | None = None,
    on_progress: Progress | None = None,
    *,
    contents: Mapping[str, bytes] | None = None,
    cache: TraceCache | None = None,
) -> Report:
    """Lint models and sources.

    Args:
        targets: 'path/file.py:callable' and 'package.module:callable' are built and traced; files and
            folders are read, never run.
        settings: None: the defaults.
        on_progress: called with one line about what is being done.
        contents: by absolute path, bytes that stand for source files on the disk.
        cache: where traced models are kept; None: trace every model.

    Raises:
        UsageError: a setting names an unknown rule, GPU or baseline; nothing was linted.
    """
    settings = settings or Settings()
    baseline = Baseline.load(settings.baseline) if settings.baseline else None
    selection = Selection(settings)
    rules = selection.rules
    settings = _with_known_gpus(settings)
    # The same target twice is one entry: findings would only repeat.
    unique = list(dict.fromkeys(targets))
    models = [target for target in unique if is_model_target(target)]
    paths = [target for target in unique if not is_model_target(target)]

    settings, stated = _joined(models, paths, settings)
    findings: list[Finding] = []
    entries: list[Entry] = []
    contexts: dict[int, tuple[GraphContext, frozenset[int]]] = {}
    errors: list[EntryError] = []
    graph_rules = [rule for rule in rules if isinstance(rule, GraphRule)]
    for result in _trace(models, settings, on_progress, cache):
        if result.graph is None:
            errors.append(_entry_error(result))
            continue
        entry, found, context = _check_graph(result, graph_rules, settings)
        entries.append(replace(entry, assumptions=(*stated, *entry.assumptions)))
        findings.extend(found)
        changes = frozenset(id(finding.change) for finding in found if finding.change is not None)
        if changes:
            contexts[len(entries) - 1] = context, changes

    source = _check_sources(paths, rules, settings, on_progress, errors, contents)
    findings.extend(source.findings)
    findings = [finding for finding in findings if selection.allows(finding)]

    findings, suppressed = apply_suppressions(
        findings,
        source_paths=source.paths,
        source_rules=[rule for rule in rules if isinstance(rule, SourceRule)],
        graph_rules=graph_rules,
        marked=source.marked,
        allows=selection.allows,
    )
    listed, below = _split_by_gain(findings, settings)
    listed, known = baseline.split(listed) if baseline is not None else (listed, [])
    return Report(
        settings=settings,
        entries=tuple(
            _with_fixes(entry, *contexts[index], listed) if index in contexts else entry
            for index, entry in enumerate(with_worst_marked(entries))
        ),
        findings=tuple(_relative(finding) for finding in rank(worst_of_sets(listed, entries))),
        below_min_gain=tuple(
            _relative(finding) for finding in rank(worst_of_sets(below, entries, besides=listed))
        ),
        suppressed=tuple(_relative(finding) for finding in suppressed),
        skipped=source.skipped,
        errors=tuple(errors),
        source_files=source.files,
        baselined=tuple(_relative(finding) for finding in known),
        paths=source.paths,
        digests=source.digests,
    )


def rank(findings: Sequence[Finding]) -> list[Finding]:
    """Errors first, then by the largest predicted gain on any of the GPUs, then unpriced ones by level."""

    def key(finding: Finding) -> tuple[bool, bool, float, int, str, int, str]:
        gain_percent = finding.effect.best_gain_percent
        return (
            finding.level != "error",
            gain_percent is None,
            -(gain_percent or 0.0),
            LEVEL_ORDER[finding.level],
            finding.location.path,
            finding.location.line,
            finding.code,
        )

    return sorted(findings, key=key)


@dataclass(frozen=True, slots=True)
class _Sources:
    findings: list[Finding]
    paths: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    files: int
    marked: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, bytes] = field(default_factory=dict)


def _with_known_gpus(settings: Settings) -> Settings:
    from tclint.gpu import load_gpu

    return replace(settings, gpus=tuple(dict.fromkeys(load_gpu(gpu).id for gpu in settings.gpus)))


def _trace(
    models: Sequence[str], settings: Settings, on_progress: Progress | None, cache: TraceCache | None
) -> Iterable[TraceResult]:
    if not models:
        return ()
    if cache is not None:
        return cache.trace(models, settings, on_progress)
    from tclint.tracing import trace_targets

    return trace_targets(models, settings, on_progress=on_progress)


def _entry_error(result: TraceResult) -> EntryError:
    error = result.error
    if error is None:
        return EntryError(result.entry, f"{result.entry} was not traced, for a reason that was lost.")
    return EntryError(result.entry, str(error), error.details, error.captured_output)


def _joined(
    models: Sequence[str], paths: Sequence[str], settings: Settings
) -> tuple[Settings, tuple[Assumption, ...]]:
    """The settings as the training script given beside a model has them, and where it says so."""
    existing = [path for path in paths if os.path.exists(path)]
    if not models or not existing:
        return settings, ()
    from tclint.training_script import join

    return join(existing, models, settings)


def _check_graph(
    result: TraceResult, rules: Sequence[GraphRule], settings: Settings
) -> tuple[Entry, list[Finding], GraphContext]:
    from tclint.context import GraphContext
    from tclint.model_facts import aligned_flops_percent, graph_hash
    from tclint.what_if import WhatIf, batch_limits

    graph = result.graph
    assert graph is not None
    started = time.perf_counter()
    context = GraphContext(graph, settings, result.entry)
    for scenario in context.scenarios:
        context.estimate(scenario)  # remembered; the rules ask for it
    priced = time.perf_counter()
    found = [
        replace(finding, target=result.entry)
        for rule in rules
        for finding in apply_rule(rule, context, context.root_location())
    ]
    ruled = time.perf_counter()
    metrics = {}
    gaps: tuple[Gap, ...] = ()
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        gaps = estimate.gaps
        metrics[estimate.gpu.id] = Metrics(
            gpu=estimate.gpu.id,
            step_time_us=estimate.step_time_us,
            forward_time_us=estimate.forward_time_us,
            backward_time_us=estimate.backward_time_us,
            optimizer_time_us=estimate.optimizer_time_us,
            readiness_percent=estimate.readiness_percent,
            tensor_core_time_percent=estimate.tensor_core_time_percent,
            amdahl_ceiling=estimate.amdahl_ceiling,
            uncertainty_percent=estimate.uncertainty_of_percent(range(-1, len(graph.ops))),
            calibrated=estimate.gpu.calibrated(scenario.precision),
            step_flops=estimate.flops,
            aligned_flops_percent=aligned_flops_percent(estimate),
            memory_bytes=estimate.memory.total_bytes,
            memory=estimate.memory,
            batch_limits=batch_limits(context, scenario),
            launch_count=estimate.launch_count,
            launch_time_us=estimate.launch_time_us,
            step_time_us_by_precision={
                precision: context.estimate(replace(scenario, precision=precision)).step_time_us
                for precision in PRECISIONS
                if estimate.gpu.supports(precision)
            },
        )
    comparisons = WhatIf(context).compare(settings.compare)
    cost_s = priced - started + time.perf_counter() - ruled
    entry = Entry(
        target=result.entry,
        model=str(graph.metadata.get("model", "")),
        mode=settings.mode,
        precision=settings.precision,
        parameters=graph.parameter_count,
        flops=graph.flops,
        op_count=len(graph.ops),
        metrics=metrics,
        assumptions=graph.assumptions,
        not_analysed=gaps,
        seconds={**result.seconds, "cost": cost_s, "rules": ruled - priced},
        inputs=tuple((spec.input_name or "", spec.dtype, spec.shape) for spec in graph.inputs),
        graph_hash=graph_hash(graph),
        torch_version=str(graph.metadata.get("torch", "")),
        comparisons=comparisons,
        input_set=result.input_set,
        captured_output=result.captured_output,
        graph=graph,
    )
    return entry, found, context


def _with_fixes(
    entry: Entry, context: GraphContext, changes: frozenset[int], listed: Sequence[Finding]
) -> Entry:
    """The entry with the step that its listed fixes together would give; `changes` by identity."""
    from tclint.advice.combined import all_fixes

    fixed = all_fixes(context, [finding for finding in listed if id(finding.change) in changes])
    if fixed is None:
        return entry
    metrics = {
        gpu: replace(
            found,
            step_time_fixed_us=fixed.step_time_us[gpu],
            readiness_fixed_percent=fixed.readiness_percent[gpu],
        )
        for gpu, found in entry.metrics.items()
    }
    return replace(entry, metrics=metrics, fixes_made=len(fixed.made))


def _check_sources(
    paths: Sequence[str],
    rules: Sequence[Rule],
    settings: Settings,
    on_progress: Progress | None,
    errors: list[EntryError],
    contents: Mapping[str, bytes] | None,
) -> _Sources:
    existing = []
    for path in paths:
        if os.path.exists(path):
            existing.append(path)
        else:
            errors.append(EntryError(path, _missing(path)))
    if not existing:
        return _Sources([], (), (), 0)
    from tclint.fix import with_fixes
    from tclint.source import lint

    if on_progress:
        on_progress(f"reading {', '.join(existing)}")
    try:
        result = lint(
            existing,
            [rule for rule in rules if isinstance(rule, SourceRule)],
            settings,
            contents=contents,
            finish=with_fixes,
        )
    except (TargetError, UsageError) as error:
        errors.append(EntryError(", ".join(existing), str(error)))
        return _Sources([], (), (), 0)
    skipped = tuple(replace(item, path=relative_path(item.path)) for item in result.skipped)
    unread = {item.path for item in result.skipped}
    paths = tuple(path for path in result.paths if path not in unread)
    return _Sources(result.findings, paths, skipped, result.files, result.marked, result.digests)


def _missing(path: str) -> str:
    if ":" in os.path.basename(path):
        return (
            f"There is no file or folder {path!r}; a model target is written 'path/file.py:callable' "
            "or 'package.module:callable'."
        )
    return f"There is no file or folder {path!r}; give a Python file, a folder, or 'file.py:callable'."


def _split_by_gain(findings: Sequence[Finding], settings: Settings) -> tuple[list[Finding], list[Finding]]:
    listed: list[Finding] = []
    below: list[Finding] = []
    for finding in findings:
        gain_percent = finding.effect.best_gain_percent
        pays = gain_percent is None or gain_percent >= settings.min_gain_percent
        (listed if pays or finding.level == "error" else below).append(finding)
    return listed, below


def relative_path(path: str) -> str:
    """`path` from the working directory with forward slashes; unchanged where that is impossible."""
    if not os.path.isabs(path):
        return os.path.normpath(path).replace(os.sep, "/")
    try:
        return os.path.relpath(path).replace(os.sep, "/")
    except ValueError:  # another drive
        return path.replace(os.sep, "/")


def _relative(finding: Finding) -> Finding:
    def at(location: Location) -> Location:
        return replace(location, path=relative_path(location.path))

    related = tuple(replace(item, location=at(item.location)) for item in finding.related)
    fix = finding.fix
    if fix is not None and fix.edits:
        edits = tuple(replace(edit, path=relative_path(edit.path)) for edit in fix.edits)
        fix = replace(fix, edits=edits)
    # A change holds the graph; a report is plain data.
    return replace(finding, location=at(finding.location), related=related, fix=fix, change=None)
