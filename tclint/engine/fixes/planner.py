"""From a report to the plan of one target's fixes: in their order, each edited and proved on its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.what_if.combined import FixStep, all_fixes, change_of
from tclint.analysis.what_if.usual_batch import as_if_stated
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Edit, Finding
from tclint.engine.check import Progress, relative_path
from tclint.engine.fixes.bench import Bench, Made, Refused, StepOutcome, places_of
from tclint.engine.fixes.calls import scaled_attention
from tclint.engine.fixes.copies import Copies
from tclint.engine.fixes.files import contents_of
from tclint.engine.fixes.plan import ByHand, FixPlan, PlanStep
from tclint.engine.fixes.project import unrun_code
from tclint.engine.fixes.proof import Proof, checked, key_of, other_interface, relative_finding, trained
from tclint.engine.fixes.resizing import Resizing
from tclint.engine.fixes.rewrites import NO_EDIT, rewrites
from tclint.engine.fixes.shown import digests_of, line_at, places_text, text_edits
from tclint.engine.report import Entry, Report
from tclint.engine.rules.registry import Selection
from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.dims.realized import difference, realized_sizes, sizes_of_weights
from tclint.graph.ops import Graph
from tclint.graph.weights.weight_plan import weight_plan

_CHANNELS_LAST = "FMT001"
_OTHER_SIZES = "other models of the project give the size a value of their own"

_NOTHING = 1e-6
"""The share of the step by which sums of times differ through rounding."""

_Make: TypeAlias = "Callable[[Bench, StepOutcome], Made]"


def plan_fixes(
    report: Report,
    target: str,
    on_progress: Progress | None = None,
    scripts: Sequence[str] = (),
    *,
    keep_architecture: bool = False,
) -> FixPlan:
    """The plan of a target's fixes: what each gains, its edits, and whether they are proved; writes nothing.

    Args:
        report: of a run that linted the target.
        target: as it was given to that run.
        on_progress: called with one line about what is being done.
        scripts: training code that may read what is edited.
        keep_architecture: pad what another fix would make smaller, so that saved weights still fit, padded.

    Raises:
        UsageError: the report has no such target.
    """
    entry = next((entry for entry in report.entries if entry.target == target and entry.graph), None)
    if entry is None:
        entry = next((one for one in report.entries if _is_of(one, target) and one.graph), None)
    if entry is None:
        raise UsageError(f"The report has no model {target!r}: fixes are planned for one that was linted.")
    return _Planner(report, entry, target, on_progress, keep_architecture).plan(scripts)


def _is_of(entry: Entry, target: str) -> bool:
    return entry.target.startswith(f"{target} [")


class _Planner:
    def __init__(
        self,
        report: Report,
        entry: Entry,
        target: str,
        on_progress: Callable[[str], None] | None,
        keep_architecture: bool = False,
    ) -> None:
        assert entry.graph is not None
        self._target, self._entry, self._report = target, entry, report
        self._keep_architecture = keep_architecture
        self._say = on_progress or (lambda _: None)
        self._settings: Settings = as_if_stated(GraphContext(entry.graph, entry.settings or report.settings))
        rules = [rule for rule in Selection(report.settings).rules if isinstance(rule, GraphRule)]
        self._context, self._found = checked(entry.graph, rules, self._settings, entry.target)
        # Some rules ask for the least gain themselves; a shorter step alone makes no finding new.
        lenient = replace(self._settings, min_gain_percent=0.0)
        _, known = checked(entry.graph, rules, lenient, entry.target)
        self._proof = Proof(
            entry.target,
            tuple(rules),
            self._settings,
            self._context,
            frozenset(map(key_of, (*self._found, *known))),
        )
        self._steps = self._ordered()

    def plan(self, scripts: Sequence[str]) -> FixPlan:
        plan = FixPlan(self._target, dict(self._proof.step_time_us))
        if not self._steps:
            return plan
        read: Sequence[str] = self._context.graph.metadata.get("source_files", ())
        self._say(f"building {self._target} from a copy")
        with Copies(self._target, self._settings, read) as copies:
            unrun = unrun_code(self._target, self._context.graph, read, scripts)
            bench = Bench(self._target, self._settings, self._context, copies, self._proof, unrun)
            plan = replace(plan, **self._made(bench))
        return replace(plan, digests=digests_of(edit.path for edit in plan.edits))

    # -- the order

    def _ordered(self) -> tuple[FixStep, ...]:
        """As the report has them."""

        def of_report(findings: Sequence[Finding]) -> list[Finding]:
            known = {finding.fingerprint for finding in findings if self._entry.target in finding.targets}
            found = [one for one in self._found if relative_finding(one).fingerprint in known]
            if not self._keep_architecture:
                return found
            return [kept for kept in map(self._padded, found) if kept is not None]

        combined = all_fixes(
            self._context,
            of_report(self._report.findings),
            of_report(self._report.below_min_gain),
            min_gain_percent=self._settings.min_gain_percent,
        )
        return combined.steps if combined is not None else ()

    def _padded(self, finding: Finding) -> Finding | None:
        """The finding with the change that keeps the architecture; None where it has none."""
        change = finding.change
        if not isinstance(change, Change) or not any(size < group.size for group, size in change.sizes):
            return finding
        if change.instead is None:
            return None
        effect = self._context.effect(finding.effect.op_indices, change.instead)
        return replace(finding, change=change.instead, effect=effect)

    def _unlocks(self) -> dict[str, tuple[str, ...]]:
        """By fingerprint: the later steps that gain enough only once that one is made."""
        found: dict[str, list[str]] = {}
        least = self._settings.min_gain_percent
        for later, step in enumerate(self._steps):
            if (step.finding.effect.best_gain_percent or 0.0) >= least:
                continue
            fingerprint = relative_finding(step.finding).fingerprint
            for earlier in range(later):
                both = all_fixes(
                    self._context,
                    [self._steps[earlier].finding],
                    [step.finding],
                    min_gain_percent=least,
                )
                if both is not None and any(made is step.finding for made in both.made):
                    first = relative_finding(self._steps[earlier].finding).fingerprint
                    found.setdefault(first, []).append(fingerprint)
                    break
        return {name: tuple(names) for name, names in found.items()}

    # -- the edits

    def _made(self, bench: Bench) -> dict[str, Any]:
        """What the plan says of the steps: fields of a FixPlan."""
        [unchanged] = bench.copies.trace([{}])
        made = Made((), {}, self._context.graph, self._proof.step_time_us)
        if unchanged.graph is None:
            problem = f"a copy of the files that it reads cannot be built: {unchanged.error}"
        elif not _is_the_same(bench, bench.copies.as_priced(unchanged.graph)):
            problem = "built a second time it is another model, so that no edit can be proved"
        else:
            problem = ""
        outcomes: list[StepOutcome] = []
        for step in self._steps:
            outcomes.append(StepOutcome(step, made, made, problem or NO_EDIT))
        if not problem:
            # What cuts outputs back comes after all that only resizes: a trace with cuts has other ops.
            for number, (outcome, make) in enumerate(self._in_order(bench, outcomes), start=1):
                finding = outcome.step.finding
                path = relative_path(finding.location.path)
                self._say(f"fix {number} of {len(outcomes)}: {finding.code} at {path}")
                outcome.before = outcome.after = made
                outcome.number = number
                made = make(bench, outcome)
        made = _scale(bench, outcomes, made)
        for outcome in [item for item in outcomes if _parameters(item.after) != _parameters(item.before)][:1]:
            outcome.notes += _loads(bench)
        return {
            "steps": self._written(bench, outcomes, made),
            "weights": self._weights(bench, outcomes, made, unchanged.graph),
            "also_fixed": self._also(made),
        }

    def _weights(
        self, bench: Bench, outcomes: Sequence[StepOutcome], made: Made, traced: Graph | None
    ) -> Any:
        """How saved weights follow the new sizes; None where none changes.

        Args:
            bench: the target.
            outcomes: of the steps, with edits of attention that keeps its scale.
            made: with all other edits.
            traced: the model alone, without the loss that the settings put behind it.
        """
        if not made.sizes or traced is None or _shrinks(made.sizes):
            return None
        dims = CoupledDims(traced)
        try:
            grown = sizes_of_weights(dims, made.graph)
            plan = weight_plan(dims, grown)
        except DimsUnresolved:
            return None
        scales = (edit for outcome in outcomes for edit in outcome.scales)
        contents = contents_of(bench.texts, tuple(dict.fromkeys((*made.edits, *scales))))
        if not grown or contents is None:
            return None
        self._say("comparing runs of the model and of its padded copy")
        return bench.copies.proved_plan(contents, dims, plan).to_json()

    def _in_order(self, bench: Bench, outcomes: Sequence[StepOutcome]) -> Iterator[tuple[StepOutcome, _Make]]:
        resized = [outcome for outcome in outcomes if change_of(outcome.step.finding).sizes]
        grows = {id(it): Resizing(bench, it.step, it.before).grows for it in resized}
        yield from ((outcome, _resize) for outcome in resized if not grows[id(outcome)])
        yield from ((outcome, _resize) for outcome in resized if grows[id(outcome)])
        yield from ((outcome, self._rewrite) for outcome in outcomes if outcome not in resized)

    def _also(self, made: Made) -> tuple[str, ...]:
        """Fingerprints of listed findings that are gone with what is made, though no step is theirs."""
        if not made.edits:
            return ()
        left = self._proof.paying(made.graph)
        steps = {key_of(step.finding) for step in self._steps}
        return tuple(
            finding.fingerprint
            for finding in self._report.findings
            if self._entry.target in finding.targets
            and finding.effect.best_gain_percent is not None
            and key_of(finding) not in left
            and key_of(finding) not in steps
        )

    def _rewrite(self, bench: Bench, outcome: StepOutcome) -> Made:
        """What is made with a fix that changes no size."""
        made = outcome.before
        finding, graph = outcome.step.finding, self._context.graph
        places = places_of(outcome.step)
        for index in finding.effect.op_indices:
            op = graph.ops[index]
            sites = (op.construct_site, op.call_site)
            places |= {(site.path, site.line) for site in sites if site is not None}
        viewed = bench.unrun.flattened()
        if finding.code == _CHANNELS_LAST and viewed:
            outcome.reason = f"views at {places_text(viewed)} need contiguous outputs: reshape allows both"
            return made
        edits = rewrites(finding, places, graph.root_site, bench.texts, self._report.settings)
        if isinstance(edits, str):
            outcome.reason = edits
            return made
        traced = bench.traced((*made.edits, *edits))
        if isinstance(traced, str):
            outcome.reason = traced
            return made
        change, as_is = change_of(finding), bench.resized(made.sizes)
        changes = (*made.changes, change)
        try:
            planned = GraphContext(as_is, self._settings).after(replace(change, sizes=())).graph
            expected_us = bench.expected(made, as_is, changes)
        except DimsUnresolved as error:
            outcome.reason = str(error)
            return made
        fixed = (*made.fixed, finding)
        outcome.reason = (
            other_interface(made.graph, traced, trained(as_is) - trained(planned))
            or self._proof.problem(traced, fixed, made.step_us)
            or ""
        )
        if outcome.reason:
            return made
        outcome.notes += tuple(map(ByHand, self._proof.told(traced, expected_us)))
        outcome.after = replace(
            made,
            edits=(*made.edits, *edits),
            graph=traced,
            step_us=bench.priced_as_is(traced),
            fixed=fixed,
            changes=changes,
        )
        return outcome.after

    # -- what the plan says

    def _written(self, bench: Bench, outcomes: Sequence[StepOutcome], made: Made) -> tuple[PlanStep, ...]:
        """First those that are edited, in that order, with the traced steps; then what else would gain."""
        unlocks = self._unlocks()
        edited = sorted((it for it in outcomes if not it.reason), key=lambda it: it.number)
        found, sizes = [], dict[DimGroup, int]()
        for outcome in edited:
            before, after = outcome.before, outcome.after
            new = {group: size for group, size in after.sizes.items() if before.sizes.get(group) != size}
            sizes |= new
            pairs = {(group.size, size) for group, size in new.items() if group.parameters}
            found.append(self._step(outcome, unlocks, before.step_us, after.step_us, pairs))
        changes, step_us = list(made.changes), made.step_us
        for outcome in (it for it in outcomes if it.reason):
            change = change_of(outcome.step.finding)
            try:
                if _is_taken(bench, change, sizes):
                    continue
                planned = {**dict(change.sizes), **sizes}
                after_us = bench.expected(made, bench.resized(planned), (*changes, change))
            except DimsUnresolved:
                continue
            if all(after_us[gpu] >= (1 - _NOTHING) * before for gpu, before in step_us.items()):
                continue
            pairs = {(group.size, size) for group, size in change.sizes}
            found.append(self._step(outcome, unlocks, step_us, after_us, pairs))
            sizes, step_us = planned, after_us
            changes.append(change)
        return tuple(found)

    def _step(
        self,
        outcome: StepOutcome,
        unlocks: Mapping[str, tuple[str, ...]],
        before_us: Mapping[str, float],
        step_us: Mapping[str, float],
        pairs: Collection[tuple[int, int]],
    ) -> PlanStep:
        before, after, base_us = outcome.before, outcome.after, self._proof.step_time_us
        finding = relative_finding(outcome.step.finding)
        edits = [edit for edit in after.edits if edit not in before.edits]
        cuts_us = {gpu: us - before.cuts_us.get(gpu, 0.0) for gpu, us in after.cuts_us.items()}
        return PlanStep(
            code=finding.code,
            name=finding.name,
            fingerprint=finding.fingerprint,
            path=finding.location.path,
            line=finding.location.line,
            module_path=finding.location.module_path or "",
            message=finding.message,
            step_time_us=dict(step_us),
            gain_percent={gpu: 100.0 * (before_us[gpu] - step_us[gpu]) / base_us[gpu] for gpu in base_us},
            sizes=tuple(sorted(pair for pair in pairs if pair[0] != pair[1])),
            unlocks=unlocks.get(finding.fingerprint, ()),
            edits=text_edits(sorted((*edits, *outcome.scales), key=lambda it: (it.path, it.start))),
            by_hand=outcome.by_hand,
            notes=outcome.notes,
            cuts_us={} if before.cuts_us == after.cuts_us else cuts_us,
            proved=not outcome.reason,
            reason=outcome.reason,
            parameters_added=after.graph.parameter_count - before.graph.parameter_count,
        )


def _is_taken(bench: Bench, change: Change, sizes: Mapping[DimGroup, int]) -> bool:
    """Whether what is edited gives a dim of a change another size: both cannot be made."""
    return any(bench.dims.size_of(group, sizes) not in (group.size, size) for group, size in change.sizes)


def _shrinks(sizes: Mapping[DimGroup, int]) -> bool:
    """Whether it is another architecture, which holds no weights of the old one."""
    return any(size < group.size for group, size in sizes.items())


def _is_the_same(bench: Bench, graph: Graph) -> bool:
    sizes = realized_sizes(bench.dims, graph)
    return sizes is not None and all(size == group.size for group, size in sizes.items())


def _resize(bench: Bench, outcome: StepOutcome) -> Made:
    """What is made with a fix that changes sizes."""
    resizing = Resizing(bench, outcome.step, outcome.before)
    result = resizing.run()
    if isinstance(result, Refused):
        outcome.reason, outcome.by_hand = result.reason, result.by_hand
        return outcome.before
    outcome.after, outcome.reason, outcome.notes = result, "", resizing.notes
    outcome.is_given_elsewhere = resizing.is_given_elsewhere
    return result


def _scale(bench: Bench, outcomes: Sequence[StepOutcome], made: Made) -> Made:
    """With attention that keeps the scale of its heads."""
    seen: set[Edit] = set()
    told: set[ByHand] = set()
    for outcome in sorted(outcomes, key=lambda outcome: len(outcome.after.fixed)):
        if outcome.after.sizes != outcome.before.sizes and not _shrinks(outcome.after.sizes):
            after = bench.resized(outcome.after.sizes)
            edits, by_hand = scaled_attention(bench.context.graph, after, bench.texts)
            outcome.by_hand += tuple(item for item in by_hand if item not in told)
            edits = tuple(edit for edit in edits if edit not in seen)
            seen.update(edits)
            if outcome.is_given_elsewhere:
                outcome.by_hand += tuple(_not_proved(edit, _OTHER_SIZES) for edit in edits)
            else:
                outcome.scales = edits
            told.update(by_hand)
    scales = [edit for outcome in outcomes for edit in outcome.scales]
    if not scales:
        return made
    graph = bench.traced((*made.edits, *scales))
    if isinstance(graph, str):
        problem: str | None = graph
    else:
        problem = difference(made.graph, graph)
        problem = problem or bench.proof.problem(graph, made.fixed, bench.proof.step_time_us)
    if problem is None:
        return made
    for outcome in outcomes:
        outcome.by_hand += tuple(_not_proved(edit, problem) for edit in outcome.scales)
        outcome.scales = ()
    return made


def _not_proved(edit: Edit, problem: str) -> ByHand:
    what = (
        f"{edit.replacement.strip(' ,')} is needed here for pretrained weights, but is not edited: {problem}"
    )
    return ByHand(what, *line_at(edit.path, edit.start[0]))


def _parameters(made: Made) -> set[tuple[str, tuple[int, ...]]]:
    return {(parameter.name, parameter.shape) for parameter in made.graph.parameters}


def _loads(bench: Bench) -> tuple[ByHand, ...]:
    what = (
        "loads weights: those saved before have the old names and sizes; tclint pad makes them the new sizes"
    )
    return tuple(ByHand(what, *line_at(*place)) for place in bench.unrun.loads())
