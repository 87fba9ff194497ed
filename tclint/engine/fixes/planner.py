"""From a report to the plan of one target's fixes: in their order, each edited and proved on its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tclint.analysis.change import Change, resize
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.what_if.combined import FixStep, all_fixes
from tclint.analysis.widths.alignment import efficient_multiple, padding_multiples
from tclint.analysis.widths.padding import padded_sizes
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Edit, Finding
from tclint.cost.estimate import estimate
from tclint.edits.sizes.candidates import Place
from tclint.engine.check import Progress, relative_path
from tclint.engine.fixes.calls import calls_to_adapt, is_cut, other_than_cut
from tclint.engine.fixes.copies import Copies
from tclint.engine.fixes.plan import ByHand, FixPlan, PlanStep, TextEdit
from tclint.engine.fixes.proof import Proof, checked, fingerprints, relative_finding, step_times_us
from tclint.engine.fixes.rewrites import NO_EDIT, rewrites
from tclint.engine.fixes.search import Search, contents_of, texts_of
from tclint.engine.model_pass import as_priced
from tclint.engine.report import Entry, Report
from tclint.engine.rule_registry import Selection
from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.dims.realized import realized_sizes
from tclint.graph.ops import Graph
from tclint.graph.weights.weight_plan import weight_plan
from tclint.tracing import TraceResult

_MOST_GROWTH = 1.5
"""Of a dim that is padded to another multiple than planned."""


_VOCABULARY = "DIM003"
_MOST_SEARCHED = 2
"""Sizes of one finding whose edits are searched for."""


def plan_fixes(report: Report, target: str, on_progress: Progress | None = None) -> FixPlan:
    """The plan of a target's fixes: what each gains, its edits, and whether they are proved; writes nothing.

    Args:
        report: of a run that linted the target.
        target: as it was given to that run.
        on_progress: called with one line about what is being done.

    Raises:
        UsageError: the report has no such target.
    """
    entry = next((entry for entry in report.entries if entry.target == target and entry.graph), None)
    if entry is None:
        entry = next((one for one in report.entries if _is_of(one, target) and one.graph), None)
    if entry is None:
        raise UsageError(f"The report has no model {target!r}: fixes are planned for one that was linted.")
    return _Planner(report, entry, target, on_progress).plan()


def _is_of(entry: Entry, target: str) -> bool:
    return entry.target.startswith(f"{target} [")


@dataclass
class _Made:
    """What is edited so far."""

    edits: tuple[Edit, ...]
    sizes: Mapping[DimGroup, int]
    graph: Graph
    fixed: tuple[Finding, ...] = ()
    planned_us: Mapping[str, float] = field(default_factory=dict)
    """The step that was promised with it, by GPU."""
    cuts_us: Mapping[str, float] = field(default_factory=dict)
    """What cutting padded logits back takes of that."""
    changes: tuple[Change, ...] = ()
    """Those that change no size."""


@dataclass
class _Outcome:
    """What came of one step."""

    step: FixStep
    before: _Made
    after: _Made
    """The same where it is not edited."""
    reason: str = ""
    adapted: tuple[Edit, ...] = ()
    """Edits of calls that depend on its sizes."""
    cuts_us: Mapping[str, float] = field(default_factory=dict)
    by_hand: tuple[ByHand, ...] = ()


class _Planner:
    def __init__(
        self, report: Report, entry: Entry, target: str, on_progress: Callable[[str], None] | None
    ) -> None:
        assert entry.graph is not None
        self._target, self._entry, self._report = target, entry, report
        self._say = on_progress or (lambda _: None)
        self._traced: Graph | None = None
        """Without what the settings add to it."""
        self._weights: Any = None
        self._settings: Settings = entry.settings or report.settings
        rules = [rule for rule in Selection(report.settings).rules if isinstance(rule, GraphRule)]
        self._context, self._found = checked(entry.graph, rules, self._settings, entry.target)
        self._proof = Proof(
            entry.target,
            tuple(rules),
            self._settings,
            step_times_us(self._context),
            fingerprints(self._found),
        )

    # -- the order

    def plan(self) -> FixPlan:
        steps = self._steps = self._ordered()
        plan = FixPlan(self._target, dict(self._proof.step_time_us))
        if not steps:
            return plan
        unlocks = self._unlocks(steps)
        read: Sequence[str] = self._context.graph.metadata.get("source_files", ())
        with Copies(self._target, self._settings, read) as copies:
            planned, made = self._edited(steps, unlocks, copies)
        plan = replace(plan, steps=planned, weights=self._weights, also_fixed=self._also(made))
        return replace(plan, digests=_digests(plan))

    def _ordered(self) -> tuple[FixStep, ...]:
        """As the report has them."""

        def of_report(findings: Sequence[Finding]) -> list[Finding]:
            known = {finding.fingerprint for finding in findings if self._entry.target in finding.targets}
            return [finding for finding in self._found if relative_finding(finding).fingerprint in known]

        combined = all_fixes(
            self._context,
            of_report(self._report.findings),
            of_report(self._report.below_min_gain),
            min_gain_percent=self._settings.min_gain_percent,
        )
        return combined.steps if combined is not None else ()

    def _unlocks(self, steps: Sequence[FixStep]) -> dict[int, tuple[str, ...]]:
        """By position: the later steps that gain enough only once that one is made."""
        found: dict[int, list[str]] = {}
        least = self._settings.min_gain_percent
        for later, step in enumerate(steps):
            if (step.finding.effect.best_gain_percent or 0.0) >= least:
                continue
            fingerprint = relative_finding(step.finding).fingerprint
            for earlier in range(later):
                both = all_fixes(
                    self._context,
                    [steps[earlier].finding],
                    [step.finding],
                    min_gain_percent=least,
                )
                if both is not None and any(made is step.finding for made in both.made):
                    found.setdefault(earlier, []).append(fingerprint)
                    break
        return {position: tuple(names) for position, names in found.items()}

    # -- the edits

    def _edited(
        self, steps: Sequence[FixStep], unlocks: Mapping[int, tuple[str, ...]], copies: Copies
    ) -> tuple[tuple[PlanStep, ...], _Made]:
        self._say(f"building {self._target} from a copy")
        [unchanged] = copies.trace([{}])
        problem = self._not_the_same(copies, unchanged)
        self._traced = unchanged.graph
        made = _Made((), {}, self._context.graph)
        outcomes: list[_Outcome] = []
        for position, step in enumerate(steps):
            number = f"fix {position + 1} of {len(steps)}"
            self._say(f"{number}: {step.finding.code} at {relative_path(step.finding.location.path)}")
            if problem is not None or not _change(step.finding).sizes:
                outcomes.append(_Outcome(step, made, made, problem or NO_EDIT))
                continue
            following = self._resized(step, made, copies)
            if isinstance(following, str):
                outcomes.append(_Outcome(step, made, made, following, by_hand=self._by_hand(step)))
                continue
            outcomes.append(_Outcome(step, made, following))
            made = following
        self._weights = self._weight_plan(made)
        for outcome in outcomes if problem is None else ():
            if not _change(outcome.step.finding).sizes:
                made = self._rewrite(outcome, made, copies)
        made = self._adapt(outcomes, made, copies)
        written = [
            self._written(position, outcome, unlocks.get(position, ()))
            for position, outcome in enumerate(outcomes)
        ]
        return tuple(written), made

    def _also(self, made: _Made) -> tuple[str, ...]:
        """Fingerprints of listed findings that are gone with what is made, though no step is theirs."""
        if not made.edits:
            return ()
        left = self._proof.paying(made.graph)
        steps = {relative_finding(step.finding).fingerprint for step in self._steps}
        return tuple(
            finding.fingerprint
            for finding in self._report.findings
            if self._entry.target in finding.targets
            and finding.effect.best_gain_percent is not None
            and finding.fingerprint not in left
            and finding.fingerprint not in steps
        )

    def _weight_plan(self, made: _Made) -> Any:
        """How saved weights follow the new sizes; None where none changes."""
        if not made.sizes or self._traced is None:
            return None
        # Of the model alone: what it returns is cut back before the loss that the settings put behind it.
        dims = CoupledDims(self._traced)
        sizes = realized_sizes(dims, replace(made.graph, ops=made.graph.ops[: len(self._traced.ops)])) or {}
        grown = {group: size for group, size in sizes.items() if group.parameters and size > group.size}
        try:
            return weight_plan(dims, grown).to_json() if grown else None
        except DimsUnresolved:
            return None

    def _not_the_same(self, copies: Copies, result: TraceResult) -> str | None:
        if result.graph is None:
            return f"a copy of the files that it reads cannot be built: {result.error}"
        sizes = realized_sizes(self._context.dims, copies.as_priced(result.graph))
        if sizes is None or any(size != group.size for group, size in sizes.items()):
            return "built a second time it is another model, so that no edit can be proved"
        return None

    def _resized(self, step: FixStep, made: _Made, copies: Copies) -> _Made | str:
        """What is edited with this step made too; else why it cannot be."""
        dims = self._context.dims
        fixed = (*made.fixed, step.finding)
        try:
            planned = self._sizes(_change(step.finding), made)
        except DimsUnresolved as error:
            return str(error)
        planned_us = self._priced(dims.resize(planned))
        first, searched = "", 0
        for sizes in (planned, *self._others(step, made)):
            graph = dims.resize(sizes)
            # Before anything is edited: what the resized graph has as a finding, its edit would have too.
            problem = self._proof.problem(graph, fixed, planned_us)
            first = first or problem or ""
            wanted = realized_sizes(dims, graph) if problem is None else None
            if wanted is None:
                continue
            multiple = efficient_multiple(self._settings.precision) or 1
            search = Search(copies, dims, made.edits, made.sizes, wanted, multiple)
            found = search.run(self._places(step), _pairs(made.graph, graph))
            if found is None:
                first = first or (
                    "no place in the files that it reads holds the size so that editing it gives the planned "
                    f"model ({search.tried} edits tried)"
                )
                searched += 1
                if searched == _MOST_SEARCHED:
                    break
                continue
            changed = {group: size for group, size in found.sizes.items() if size != group.size}
            following = _Made((*made.edits, *found.edits), changed, found.graph, fixed, planned_us)
            return (
                self._proof.problem(found.graph, fixed, planned_us)
                or self._interface_problem(step, made, following, copies)
                or following
            )
        return first or "the resized graph has no sizes that a trace could be compared with"

    def _interface_problem(self, step: FixStep, made: _Made, following: _Made, copies: Copies) -> str | None:
        """Why the model would return larger outputs that cannot be cut back; a vocabulary may stay padded."""
        shapes, were = ([spec.shape for spec in graph.outputs] for graph in (following.graph, made.graph))
        if shapes == were or step.finding.code == _VOCABULARY:
            return None
        texts = texts_of(copies.editable)
        edits, _ = calls_to_adapt(self._context.graph, following.graph, texts)
        cuts = tuple(edit for edit in edits if is_cut(edit))
        cut = self._with_calls(following, cuts, texts, copies) if cuts else "where it makes them is not found"
        if not isinstance(cut, str):
            return None
        shown = ", ".join(str(list(new)) for new, old in zip(shapes, were, strict=True) if new != old)
        return f"the model would return {shown}, which cannot be cut back: {cut}"

    def _sizes(self, change: Change, made: _Made) -> dict[DimGroup, int]:
        """The change beside what is made; where both give a group a size, that one stays.

        Raises:
            DimsUnresolved: they do not fit together.
        """
        sizes = {**dict(change.sizes), **made.sizes}
        self._context.dims.resize(sizes)
        return sizes

    def _others(self, step: FixStep, made: _Made) -> Iterator[dict[DimGroup, int]]:
        """Other paddings of the same dims: each to a multiple."""
        change = _change(step.finding)
        groups = [group for group, size in change.sizes if size > group.size]
        seen = [dict(change.sizes)]
        for multiple in padding_multiples(self._settings.precision):
            sizes = padded_sizes(self._context, groups, multiple)
            if sizes in seen or any(size > _MOST_GROWTH * group.size for group, size in sizes.items()):
                continue
            seen.append(sizes)
            try:
                yield self._sizes(resize(sizes), made)
            except DimsUnresolved:
                continue

    def _adapt(self, outcomes: Sequence[_Outcome], made: _Made, copies: Copies) -> _Made:
        """With calls adapted that depend on a size: scales of attention, and logits cut back."""
        texts = texts_of(copies.editable)
        known: dict[Edit, None] = {}
        told: set[ByHand] = set()
        for outcome in outcomes:
            if outcome.after.sizes != outcome.before.sizes:
                edits, by_hand = calls_to_adapt(self._context.graph, outcome.after.graph, texts)
                outcome.adapted = tuple(edit for edit in edits if edit not in known)
                outcome.by_hand = tuple(item for item in by_hand if item not in told)
                known.update(dict.fromkeys(edits))
                told.update(by_hand)
        for kind in (is_cut, lambda edit: not is_cut(edit)):
            edits = tuple(edit for edit in known if kind(edit))
            adapted = self._with_calls(made, edits, texts, copies) if edits else made
            if not isinstance(adapted, str):
                made = adapted
                continue
            for outcome in outcomes:
                left = (self._not_adapted(edit, adapted) for edit in outcome.adapted if edit in edits)
                outcome.by_hand = (*outcome.by_hand, *left)
                outcome.adapted = tuple(edit for edit in outcome.adapted if edit not in edits)
        for outcome in outcomes:
            if any(map(is_cut, outcome.adapted)):
                outcome.cuts_us = made.cuts_us
        return made

    def _with_calls(
        self, made: _Made, edits: tuple[Edit, ...], texts: Mapping[str, str], copies: Copies
    ) -> _Made | str:
        """What is made with these calls adapted as well; else why not."""
        contents = contents_of(texts, (*made.edits, *edits))
        if contents is None:
            return "it does not fit the other edits"
        [result] = copies.trace([contents])
        if result.graph is None:
            return str(result.error)
        graph = copies.as_priced(result.graph)
        problem = other_than_cut(self._context.graph, made.graph, graph)
        if problem is not None:
            return problem
        # All other ops are as predicted: what the step takes longer is what the cuts take.
        before, after = self._priced_as_is(made.graph), self._priced_as_is(graph)
        cuts_us = {gpu: after[gpu] - before[gpu] for gpu in after}
        planned_us = {gpu: time + cuts_us[gpu] for gpu, time in made.planned_us.items()}
        gains = [100.0 * (1.0 - after[gpu] / time) for gpu, time in self._proof.step_time_us.items()]
        if max(gains) < self._settings.min_gain_percent:
            return "it takes as much time as the fixes gain"
        problem = self._proof.problem(graph, made.fixed, planned_us)
        if problem is not None:
            return problem
        if not any(map(is_cut, edits)):
            cuts_us = dict(made.cuts_us)
        return replace(made, edits=(*made.edits, *edits), graph=graph, planned_us=planned_us, cuts_us=cuts_us)

    def _not_adapted(self, edit: Edit, problem: str) -> ByHand:
        what = f"{edit.replacement.strip(' ,')} is needed here, but could not be proved: {problem}"
        return ByHand(what, relative_path(edit.path), edit.start[0])

    def _priced_as_is(self, graph: Graph) -> dict[str, float]:
        """A traced step, by GPU, as its own calls of torch.compile have it."""
        graph, settings = as_priced(graph, self._settings)
        return step_times_us(GraphContext(graph, settings, self._target))

    def _rewrite(self, outcome: _Outcome, made: _Made, copies: Copies) -> _Made:
        """What is made with a fix that changes no size."""
        finding = outcome.step.finding
        graph = self._context.graph
        places = self._places(outcome.step)
        for index in finding.effect.op_indices:
            op = graph.ops[index]
            sites = (op.construct_site, op.call_site)
            places |= {(site.path, site.line) for site in sites if site is not None}
        texts = texts_of(copies.editable)
        edits = rewrites(finding, places, graph.root_site, texts, self._report.settings)
        if isinstance(edits, str):
            outcome.reason = edits
            return made
        contents = contents_of(texts, (*made.edits, *edits))
        if contents is None:
            outcome.reason = "its edits do not fit those of the fixes before it"
            return made
        [result] = copies.trace([contents])
        if result.graph is None:
            outcome.reason = str(result.error)
            return made
        traced = copies.as_priced(result.graph)
        planned_us = self._with_change(made, finding)
        fixed = (*made.fixed, finding)
        outcome.reason = (
            self._proof.problem(traced, fixed, planned_us) or _other_interface(made.graph, traced) or ""
        )
        if outcome.reason:
            return made
        changes = (*made.changes, _change(finding))
        following = replace(
            made,
            edits=(*made.edits, *edits),
            graph=traced,
            fixed=fixed,
            planned_us=planned_us,
            changes=changes,
        )
        outcome.before, outcome.after = made, following
        return following

    def _with_change(self, made: _Made, finding: Finding) -> dict[str, float]:
        """The step with what is made, and with one more change, by GPU."""
        graph = self._context.dims.resize(made.sizes) if made.sizes else self._context.graph
        changes = (*made.changes, _change(finding))
        for change in changes:
            graph = (change.edit(graph) if change.edit else None) or graph
        times = {}
        for scenario in self._context.scenarios:
            changed = scenario
            for change in changes:
                changed = change.scenario(changed) if change.scenario else changed
            priced = estimate(graph, changed)
            times[priced.gpu.id] = priced.step_time_us
        return times

    def _priced(self, graph: Graph) -> dict[str, float]:
        return {
            (priced := estimate(graph, scenario)).gpu.id: priced.step_time_us
            for scenario in self._context.scenarios
        }

    def _places(self, step: FixStep) -> set[Place]:
        """The lines that make layers of the changing sizes."""
        groups = [root for group, _ in _change(step.finding).sizes for root in (group, *group.roots)]
        places = {(site.path, site.line) for group in groups for site in group.sites}
        located = (step.finding.location, *(item.location for item in step.finding.related))
        return places | {(location.path, location.line) for location in located}

    # -- what the plan says

    def _by_hand(self, step: FixStep) -> tuple[ByHand, ...]:
        sizes = {group: size for group, size in _change(step.finding).sizes if group.size != size}
        texts: dict[str, list[str]] = {}
        found: dict[tuple[str, int], ByHand] = {}
        for group, size in sizes.items():
            for site in (*group.sites, *(site for root in group.roots for site in root.sites)):
                if site.path not in texts:
                    texts[site.path] = next(iter(texts_of([site.path]).values()), "").split("\n")
                lines = texts[site.path]
                text = lines[site.line - 1].strip() if 0 < site.line <= len(lines) else ""
                what = f"{group.size} -> {size}"
                found.setdefault(
                    (site.path, site.line), ByHand(what, relative_path(site.path), site.line, text)
                )
        return tuple(found.values())

    def _written(self, position: int, outcome: _Outcome, unlocks: tuple[str, ...]) -> PlanStep:
        step, before, after = outcome.step, outcome.before, outcome.after
        finding = relative_finding(step.finding)
        if outcome.reason:
            pairs = {(group.size, size) for group, size in _change(finding).sizes if group.size != size}
        else:
            pairs = {
                (group.size, size)
                for group, size in after.sizes.items()
                if before.sizes.get(group) != size and group.parameters
            }
        edits = [edit for edit in after.edits if edit not in before.edits]
        return PlanStep(
            code=finding.code,
            name=finding.name,
            fingerprint=finding.fingerprint,
            path=finding.location.path,
            line=finding.location.line,
            module_path=finding.location.module_path or "",
            message=finding.message,
            step_time_us=dict(step.step_time_us),
            gain_percent={
                gpu: 100.0 * (before_us - step.step_time_us[gpu]) / self._proof.step_time_us[gpu]
                for gpu, before_us in self._before(position).items()
            },
            sizes=tuple(sorted(pairs)),
            unlocks=unlocks,
            edits=_text_edits((*edits, *outcome.adapted)),
            by_hand=outcome.by_hand,
            cuts_us=dict(outcome.cuts_us),
            proved=not outcome.reason,
            reason=outcome.reason,
            parameters_added=after.graph.parameter_count - before.graph.parameter_count,
        )

    def _before(self, position: int) -> Mapping[str, float]:
        return self._steps[position - 1].step_time_us if position else self._proof.step_time_us


def _other_interface(before: Graph, after: Graph) -> str | None:
    """How a rewritten model differs from the one before it for its callers; None: in nothing."""
    if [spec.shape for spec in before.outputs] != [spec.shape for spec in after.outputs]:
        return "the edited model returns other shapes"
    theirs = {parameter.name.removeprefix("_orig_mod."): parameter.shape for parameter in after.parameters}
    ours = {parameter.name.removeprefix("_orig_mod."): parameter.shape for parameter in before.parameters}
    added = [name for name, shape in theirs.items() if ours.get(name) != shape]
    return f"the edited model has another {added[0]}" if added else None


def _change(finding: Finding) -> Change:
    assert isinstance(finding.change, Change)
    return finding.change


def _pairs(before: Graph, after: Graph) -> set[tuple[int, int]]:
    """Old and new sizes of all tensors that change."""
    found: set[tuple[int, int]] = set()
    for old, new in zip(before.parameters, after.parameters, strict=True):
        found.update(zip(old.shape, new.shape, strict=True))
    for mine, op in zip(before.ops, after.ops, strict=True):
        if mine is not op:
            for ours, theirs in zip((*mine.inputs, *mine.outputs), (*op.inputs, *op.outputs), strict=True):
                found.update(zip(ours.shape, theirs.shape, strict=True))
    return {(old, new) for old, new in found if old != new}


def _text_edits(edits: Sequence[Edit]) -> tuple[TextEdit, ...]:
    texts = texts_of(dict.fromkeys(edit.path for edit in edits))
    found = []
    for edit in edits:
        lines = texts[edit.path].split("\n")[edit.start[0] - 1 : edit.end[0]]
        lines[-1] = lines[-1][: edit.end[1] - 1]
        lines[0] = lines[0][edit.start[1] - 1 :]
        found.append(
            TextEdit(relative_path(edit.path), *edit.start, *edit.end, "\n".join(lines), edit.replacement)
        )
    return tuple(found)


def _digests(plan: FixPlan) -> dict[str, str]:
    found = {}
    for path in dict.fromkeys(edit.path for edit in plan.edits):
        with open(path, "rb") as file:
            found[path] = hashlib.sha256(file.read()).hexdigest()
    return found
