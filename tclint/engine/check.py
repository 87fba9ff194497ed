"""The pipeline: targets -> graphs and sources -> rules -> findings -> a ranked report.

Read this file first: it shows the whole of tclint in one place. It never imports torch (worker processes
trace the models), and it imports libcst, NumPy and the rules only when they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tclint.analysis.graph_rule import GraphRule
from tclint.config.settings import Settings
from tclint.core.errors import TargetError, UsageError
from tclint.core.finding import LEVEL_ORDER, Finding, Location
from tclint.core.rule import Rule
from tclint.core.target import is_model_target, is_recipe, targets_of
from tclint.engine.baseline import Baseline
from tclint.engine.report import Entry, EntryError, Interrupted, Metrics, Report
from tclint.engine.rules.registry import Selection
from tclint.engine.run_cost import RunCost
from tclint.engine.same_findings import joined, mark_worst_case, worst_of_sets
from tclint.engine.spans import Spans
from tclint.engine.suppressions import apply_suppressions
from tclint.graph.ops import Graph
from tclint.source.project import memory
from tclint.source.project.versions import held_back
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.discovery import Skipped, refusal
from tclint.source.syntax.notebooks import Notebook

if TYPE_CHECKING:
    from tclint.analysis.graph_context import GraphContext
    from tclint.engine.script.join import Joined
    from tclint.engine.script.recipes import RecipeSteps
    from tclint.tracing import TraceResult

__all__ = ["Entry", "EntryError", "Metrics", "Progress", "Report", "check", "rank", "relative_path"]

Progress = Callable[[str], None]
Targets: TypeAlias = (
    "str | os.PathLike[str] | Callable[..., Any] | Iterable[str | os.PathLike[str] | Callable[..., Any]]"
)
"""Strings, paths, models, or callables that build models (a model is a callable too)."""


class Traces(Protocol):
    """A source of graphs to use instead of `tclint.tracing`."""

    def trace(
        self,
        targets: Sequence[str],
        settings: Settings,
        own: Mapping[str, Settings] | None = None,
        on_progress: Progress | None = None,
    ) -> Iterator[TraceResult]:
        """As `tclint.tracing.trace_targets`."""


def check(
    targets: Targets,
    settings: Settings | None = None,
    on_progress: Progress | None = None,
    *,
    contents: Mapping[str, bytes] | None = None,
    cache: Traces | None = None,
) -> Report:
    """Lint models and sources.

    Args:
        targets: one or several. 'path/file.py:callable' and 'package.module:callable' are built and traced;
            files and folders are read, never run. A model, or a callable that builds one, is traced in this
            process, without limits on time and memory, and never cached; a model is not changed.
            A graph is priced as it was traced.
        settings: None: the defaults.
        on_progress: called with one line about each stage of the work.
        contents: absolute path -> bytes to use instead of those on the disk.
        cache: returns stored traces and traces the other models; None: trace every model.

    Raises:
        UsageError: a setting names an unknown rule, GPU or baseline; nothing was linted.
        Interrupted: a KeyboardInterrupt came after a model was finished; it holds a report of what is.
    """
    settings = (settings or Settings()).in_phase()
    if contents is None:  # an editor, which passes contents, reports changed files itself
        memory.forget()
    baseline = Baseline.load(settings.baseline) if settings.baseline else None
    selection = Selection(settings)
    rules = selection.rules
    settings = _with_known_gpus(settings)
    RunCost.of(settings)
    given = targets_of(targets, Graph)
    # The same target twice is one entry: findings would only repeat.
    unique = list(dict.fromkeys(target for target in given if isinstance(target, str)))
    objects = list({id(target): target for target in given if not isinstance(target, str)}.values())
    models = [target for target in unique if is_model_target(target)]
    contents = contents or {}
    paths, unreadable = _readable([target for target in unique if not is_model_target(target)], contents)

    named = _named(objects)
    scripts_given = [path for path in paths if not is_recipe(path)]
    joined_to = _joined(models, named, scripts_given, settings)
    own = {target: stated[0] for target, stated in joined_to.items()}
    if own and len(set(own.values())) == 1:
        (settings,) = set(own.values())
    recipes = _recipes(paths, settings, contents)
    models += recipes.joined
    joined_to |= recipes.joined
    own |= {target: stated[0] for target, stated in recipes.joined.items()}
    findings: list[Finding] = []
    entries: list[Entry] = []
    contexts: list[GraphContext] = []
    scripts: list[frozenset[str]] = []
    errors: list[EntryError] = []
    graph_rules = [rule for rule in rules if isinstance(rule, GraphRule)]
    source = _Sources([], (), (), 0)
    interrupt: KeyboardInterrupt | None = None
    try:
        for result in _trace(models, named, settings, own, on_progress, cache):
            if result.graph is None and result.target in recipes.joined:
                recipes.skipped.append(recipes.not_traced(result))
                continue
            if result.graph is None:
                errors.append(_entry_error(result))
                continue
            from tclint.engine.model_pass import check_graph  # NumPy and prices: for runs with models alone

            stated_for = result.made_so(own.get(result.target, settings))
            entry, found, context = check_graph(result, graph_rules, stated_for)
            _, stated, by = joined_to.get(result.target, (None, (), frozenset()))
            entries.append(replace(entry, assumptions=(*stated, *entry.assumptions)))
            findings.extend(found)
            contexts.append(context)
            scripts.append(by)
        errors += unreadable
        source = _check_sources(paths, rules, settings, on_progress, errors, contents)
    except KeyboardInterrupt as error:
        if not entries:
            raise
        interrupt = error

    read = list(_without_priced(source.findings, findings, rules))
    if read and any(scripts):
        from tclint.engine.priced_sources import Trained, priced

        trained = [
            Trained(entry.target, context, by)
            for entry, context, by in zip(entries, contexts, scripts, strict=True)
        ]
        read, findings = priced(read, findings, rules, trained)
    findings += read
    if settings.budget.models and entries:
        from tclint.engine.budgets import over_budget

        findings += over_budget(entries, settings)
    findings = [finding for finding in findings if selection.allows(finding)]

    findings, suppressed = apply_suppressions(
        findings,
        source_paths=source.paths,
        source_rules=[rule for rule in rules if isinstance(rule, SourceRule)],
        graph_rules=graph_rules,
        marked=source.marked,
        allows=selection.allows,
        why_unknown=selection.why_unknown,
    )
    if source.notebooks:
        findings = [_of_directive(finding, source.notebooks) for finding in findings]
    listed, below = _split_by_gain(findings, settings)
    listed, known = baseline.split(listed) if baseline is not None else (listed, [])
    spans = Spans()

    def shown(finding: Finding) -> Finding:
        return _shown(finding, spans, source.notebooks)

    report = Report(
        settings=settings,
        entries=tuple(
            _planned(entry, context, listed, below)
            for entry, context in zip(mark_worst_case(entries), contexts, strict=True)
        ),
        findings=tuple(map(shown, rank(joined(worst_of_sets(listed, entries))))),
        below_min_gain=tuple(map(shown, rank(joined(worst_of_sets(below, entries, besides=listed))))),
        suppressed=tuple(map(shown, suppressed)),
        skipped=(*source.skipped, *recipes.skipped),
        errors=tuple(errors),
        source_files=source.files,
        baselined=tuple(map(shown, known)),
        paths=source.paths,
        digests=source.digests,
        models_trained=source.models,
        held_back=tuple(held_back(filter(selection.allows, source.too_new))),
        contents=contents,
    )
    if interrupt is not None:
        raise Interrupted(report) from interrupt
    return report


def _without_priced(
    read: Sequence[Finding], traced: Sequence[Finding], rules: Sequence[Rule]
) -> Iterator[Finding]:
    """Source findings, except those whose problem a traced finding reports with a price, for the same line or
    for several together."""
    priced = {(finding.code, place) for finding in traced for place in _places(finding)}
    others = {rule.code: rule.priced_as for rule in rules if isinstance(rule, SourceRule)}
    for finding in read:
        same = {(code, place) for code in others.get(finding.code, ()) for place in _places(finding)}
        location = finding.location
        if (finding.code, (location.path, location.line)) not in priced and not same & priced:
            yield finding


def _places(finding: Finding) -> Iterator[tuple[str, int]]:
    for place in (finding.location, *(related.location for related in finding.related)):
        yield place.path, place.line


def rank(findings: Sequence[Finding]) -> list[Finding]:
    """Errors first, then by the largest felt gain on any of the GPUs, then unpriced ones by level."""

    def key(finding: Finding) -> tuple[bool, bool, float, int, str, int, str]:
        gain_percent = finding.effect.best_felt_percent
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
    notebooks: Mapping[str, Notebook] = field(default_factory=dict)
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    too_new: Sequence[Finding] = ()


def _with_known_gpus(settings: Settings) -> Settings:
    from tclint.cost.gpu import load_gpu
    from tclint.cost.scenario import Scenario
    from tclint.engine.budgets import check_gpus

    Scenario.of(settings)  # refuses impossible settings before anything is traced
    check_gpus(settings)
    with settings.saying_where("gpus"):
        gpus = tuple(dict.fromkeys(load_gpu(gpu).id for gpu in settings.gpus))
    with settings.saying_where("calibration"):
        for gpu in gpus:
            load_gpu(gpu, settings.calibration)
    return replace(settings, gpus=gpus)


def _trace(
    models: Sequence[str],
    objects: Mapping[str, Any],
    settings: Settings,
    own: dict[str, Settings],
    on_progress: Progress | None,
    cache: Traces | None,
) -> Iterator[TraceResult]:
    if not models and not objects:
        return
    from tclint.engine.script.as_built import builder_at, trace_as_built
    from tclint.tracing import shared_worker, trace_objects, trace_targets

    def trace_some(names: Sequence[str], *args: Any, **keywords: Any) -> Iterator[TraceResult]:
        return trace_objects({name: objects[name] for name in names}, *args, **keywords)

    run = trace_targets if cache is None else cache.trace
    places = {name: builder_at(one) for name, one in objects.items()}
    with shared_worker():
        yield from trace_as_built(models, settings, own, on_progress, run)
        yield from trace_as_built([*objects], settings, own, on_progress, trace_some, places)


def _entry_error(result: TraceResult) -> EntryError:
    error = result.error
    if error is None:
        return EntryError(result.entry, f"{result.entry} was not traced: unknown error.")
    return EntryError(result.entry, str(error), error.details, error.captured_output)


def _named(objects: Sequence[Any]) -> dict[str, Any]:
    if not objects:
        return {}
    from tclint.tracing import object_names

    return object_names(objects)


def _joined(
    models: Sequence[str], named: Mapping[str, Any], paths: Sequence[str], settings: Settings
) -> dict[str, Joined]:
    """Model -> its settings according to the training scripts that were given with it, and their places."""
    if not paths or not (models or named):
        return {}
    from tclint.engine.script.as_built import written_at
    from tclint.engine.script.join import join

    written = {model: model for model in models} | {name: written_at(one) for name, one in named.items()}
    found = join(paths, list(dict.fromkeys(written.values())), settings)
    return {name: found[target] for name, target in written.items()}


def _recipes(paths: Sequence[str], settings: Settings, contents: Mapping[str, bytes] | None) -> RecipeSteps:
    """The configuration files whose step is priced: those that a user named. Editors and hooks name every
    changed file, so theirs do not count."""
    from tclint.engine.script.recipes import RecipeSteps, recipe_steps

    if contents or settings.force_exclude or not settings.price_recipes:
        return RecipeSteps()
    return recipe_steps(paths, settings)


def _readable(paths: Sequence[str], contents: Mapping[str, bytes]) -> tuple[list[str], list[EntryError]]:
    """The paths that can be read as source, and the errors for the others."""
    if not paths:
        return [], []

    problems = {path: refusal(path, contents) for path in paths}
    errors = [EntryError(path, problem) for path, problem in problems.items() if problem is not None]
    return [path for path, problem in problems.items() if problem is None], errors


def _check_sources(
    paths: Sequence[str],
    rules: Sequence[Rule],
    settings: Settings,
    on_progress: Progress | None,
    errors: list[EntryError],
    contents: Mapping[str, bytes],
) -> _Sources:
    if not paths:
        return _Sources([], (), (), 0)
    from tclint.edits import with_fixes
    from tclint.engine.sources.lint import lint

    if on_progress:
        on_progress(f"reading {', '.join(paths)}")
    try:
        result = lint(
            paths,
            [rule for rule in rules if isinstance(rule, SourceRule)],
            settings,
            contents=contents,
            finish=with_fixes,
        )
    except (TargetError, UsageError) as error:
        errors.append(EntryError(", ".join(paths), str(error)))
        return _Sources([], (), (), 0)
    errors += [EntryError(relative_path(path), *error) for path, *error in result.errors]
    skipped = tuple(replace(item, path=relative_path(item.path)) for item in result.skipped)
    models = {
        relative_path(script): tuple(map(_relative_target, targets))
        for script, targets in result.models.items()
    }
    return _Sources(
        *(result.findings, result.paths, skipped, result.files, result.marked, result.digests),
        *(result.notebooks, models, result.too_new),
    )


def _relative_target(target: str) -> str:
    path, _, name = target.rpartition(":")
    return f"{relative_path(path)}:{name}" if os.path.isabs(path) else target


def _split_by_gain(findings: Sequence[Finding], settings: Settings) -> tuple[list[Finding], list[Finding]]:
    listed: list[Finding] = []
    below: list[Finding] = []
    for finding in findings:
        gain_percent = finding.effect.best_gain_percent
        pays = gain_percent is None or gain_percent >= settings.min_gain_percent
        (listed if pays or finding.level == "error" else below).append(finding)
    return listed, below


def relative_path(path: str) -> str:
    """`path` relative to the working directory, with forward slashes; unchanged if that is impossible."""
    if not os.path.isabs(path):
        return os.path.normpath(path).replace(os.sep, "/")
    try:
        return os.path.relpath(path).replace(os.sep, "/")
    except ValueError:  # another drive
        return path.replace(os.sep, "/")


def _planned(
    entry: Entry, context: GraphContext, listed: Sequence[Finding], below: Sequence[Finding]
) -> Entry:
    """The entry with its fixes made, in the form for a report: paths are relative to the working
    directory."""
    from tclint.engine.model_pass import with_fixes_made

    entry = with_fixes_made(entry, context, listed, below)
    plan = (
        replace(fix, location=replace(fix.location, path=relative_path(fix.location.path)))
        for fix in entry.plan
    )
    return replace(entry, plan=tuple(plan))


def _in_notebook(location: Location, notebook: Notebook) -> Location:
    """The location in a notebook's file, with its cell, for a location in the notebook's program."""
    start = notebook.place(location.line, location.column)
    end_line, end_column = location.end_line, location.end_column
    if end_line is not None and end_column is not None:
        end_line, end_column = notebook.place(end_line, end_column)[:2]
    return replace(
        location,
        line=start.line,
        column=start.column,
        end_line=end_line,
        end_column=end_column,
        cell=start.cell,
        cell_line=start.cell_line,
    )


def _of_directive(finding: Finding, notebooks: Mapping[str, Notebook]) -> Finding:
    """A finding about a suppression; if it is in a notebook's program, its edits become edits of the file."""
    from tclint.engine.sources.lint import with_edits_of_file

    notebook = notebooks.get(finding.location.path) if finding.code.startswith("TCL") else None
    return finding if notebook is None else with_edits_of_file(finding, notebook)


def _shown(finding: Finding, spans: Spans, notebooks: Mapping[str, Notebook]) -> Finding:
    """A finding in the form for a report: with columns and relative paths, and without the graph."""
    if finding.target is not None:
        finding = spans.with_columns(finding)

    def at(location: Location) -> Location:
        notebook = notebooks.get(location.path)
        if notebook is not None:
            location = _in_notebook(location, notebook)
        return replace(location, path=relative_path(location.path))

    related = tuple(replace(item, location=at(item.location)) for item in finding.related)
    fix = finding.fix
    if fix is not None and fix.edits:
        edits = tuple(replace(edit, path=relative_path(edit.path)) for edit in fix.edits)
        fix = replace(fix, edits=edits)
    return replace(finding, location=at(finding.location), related=related, fix=fix, change=None)
