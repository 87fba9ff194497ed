"""From a report to the plan of one target's fixes: in their order, each edited and proved on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.what_if.combined import FixStep, all_fixes
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Edit, Finding
from tclint.engine.check import Progress, relative_path
from tclint.engine.fixes.bench import Bench, Made, Outcome, Refused, change_of, places_of
from tclint.engine.fixes.calls import scaled_attention, with_calls
from tclint.engine.fixes.copies import Copies
from tclint.engine.fixes.plan import ByHand, FixPlan, PlanStep
from tclint.engine.fixes.project import unrun_code
from tclint.engine.fixes.proof import Proof, checked, fingerprints, relative_finding, step_times_us
from tclint.engine.fixes.resizing import Resizing
from tclint.engine.fixes.rewrites import NO_EDIT, rewrites
from tclint.engine.fixes.shown import digests_of, line_at, text_edits
from tclint.engine.report import Entry, Report
from tclint.engine.rule_registry import Selection
from tclint.graph.dims.coupled import CoupledDims, DimsUnresolved
from tclint.graph.dims.realized import realized_sizes
from tclint.graph.ops import Graph
from tclint.graph.weights.weight_plan import weight_plan


def plan_fixes(
    report: Report, target: str, on_progress: Progress | None = None, scripts: Sequence[str] = ()
) -> FixPlan:
    """The plan of a target's fixes: what each gains, its edits, and whether they are proved; writes nothing.

    Args:
        report: of a run that linted the target.
        target: as it was given to that run.
        on_progress: called with one line about what is being done.
        scripts: training code that may read what is edited.

    Raises:
        UsageError: the report has no such target.
    """
    entry = next((entry for entry in report.entries if entry.target == target and entry.graph), None)
    if entry is None:
        entry = next((one for one in report.entries if _is_of(one, target) and one.graph), None)
    if entry is None:
        raise UsageError(f"The report has no model {target!r}: fixes are planned for one that was linted.")
    return _Planner(report, entry, target, on_progress).plan(scripts)


def _is_of(entry: Entry, target: str) -> bool:
    return entry.target.startswith(f"{target} [")


class _Planner:
    def __init__(
        self, report: Report, entry: Entry, target: str, on_progress: Callable[[str], None] | None
    ) -> None:
        assert entry.graph is not None
        self._target, self._entry, self._report = target, entry, report
        self._say = on_progress or (lambda _: None)
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
            return [finding for finding in self._found if relative_finding(finding).fingerprint in known]

        combined = all_fixes(
            self._context,
            of_report(self._report.findings),
            of_report(self._report.below_min_gain),
            min_gain_percent=self._settings.min_gain_percent,
        )
        return combined.steps if combined is not None else ()

    def _unlocks(self) -> dict[int, tuple[str, ...]]:
        """By position: the later steps that gain enough only once that one is made."""
        found: dict[int, list[str]] = {}
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
                    found.setdefault(earlier, []).append(fingerprint)
                    break
        return {position: tuple(names) for position, names in found.items()}

    # -- the edits

    def _made(self, bench: Bench) -> dict[str, Any]:
        """What the plan says of the steps: fields of a FixPlan."""
        [unchanged] = bench.copies.trace([{}])
        made = Made((), {}, self._context.graph)
        if unchanged.graph is None:
            problem = f"a copy of the files that it reads cannot be built: {unchanged.error}"
        elif not _is_the_same(bench, bench.copies.as_priced(unchanged.graph)):
            problem = "built a second time it is another model, so that no edit can be proved"
        else:
            problem = ""
        outcomes: list[Outcome] = []
        for position, step in enumerate(self._steps):
            finding = step.finding
            self._say(
                f"fix {position + 1} of {len(self._steps)}: {finding.code} at "
                f"{relative_path(finding.location.path)}"
            )
            outcome = Outcome(step, made, made, problem or NO_EDIT)
            outcomes.append(outcome)
            if not problem and change_of(finding).sizes:
                made = _resize(bench, outcome)
        weights = _weight_plan(made, unchanged.graph)
        for outcome in outcomes:
            if not problem and not change_of(outcome.step.finding).sizes:
                made = self._rewrite(bench, outcome, made)
        made = _adapt(bench, outcomes, made)
        loads = _loads(bench) if made.sizes else ()
        for outcome in [outcome for outcome in outcomes if outcome.after.sizes != outcome.before.sizes][:1]:
            outcome.notes += loads
        unlocks = self._unlocks()
        written = [
            self._written(position, outcome, unlocks.get(position, ()))
            for position, outcome in enumerate(outcomes)
        ]
        return {"steps": tuple(written), "weights": weights, "also_fixed": self._also(made)}

    def _also(self, made: Made) -> tuple[str, ...]:
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

    def _rewrite(self, bench: Bench, outcome: Outcome, made: Made) -> Made:
        """What is made with a fix that changes no size."""
        finding, graph = outcome.step.finding, self._context.graph
        places = places_of(outcome.step)
        for index in finding.effect.op_indices:
            op = graph.ops[index]
            sites = (op.construct_site, op.call_site)
            places |= {(site.path, site.line) for site in sites if site is not None}
        edits = rewrites(finding, places, graph.root_site, bench.texts, self._report.settings)
        if isinstance(edits, str):
            outcome.reason = edits
            return made
        traced = bench.traced((*made.edits, *edits))
        if isinstance(traced, str):
            outcome.reason = traced
            return made
        changes = (*made.changes, change_of(finding))
        planned_us = bench.priced(bench.dims.resize(made.sizes) if made.sizes else graph, changes)
        fixed = (*made.fixed, finding)
        outcome.reason = (
            self._proof.problem(traced, fixed, planned_us) or _other_interface(made.graph, traced) or ""
        )
        if outcome.reason:
            return made
        outcome.before = made
        outcome.after = replace(
            made,
            edits=(*made.edits, *edits),
            graph=traced,
            fixed=fixed,
            planned_us=planned_us,
            changes=changes,
        )
        return outcome.after

    # -- what the plan says

    def _written(self, position: int, outcome: Outcome, unlocks: tuple[str, ...]) -> PlanStep:
        step, before, after = outcome.step, outcome.before, outcome.after
        finding = relative_finding(step.finding)
        base_us = self._proof.step_time_us
        if outcome.reason:
            pairs = {(group.size, size) for group, size in change_of(finding).sizes if group.size != size}
            step_us: Mapping[str, float] = step.step_time_us
            before_us = self._steps[position - 1].step_time_us if position else base_us
        else:
            pairs = {
                (group.size, size)
                for group, size in after.sizes.items()
                if before.sizes.get(group) != size and group.parameters
            }
            step_us, before_us = after.planned_us, before.planned_us or base_us
        edits = [edit for edit in after.edits if edit not in before.edits]
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
            sizes=tuple(sorted(pairs)),
            unlocks=unlocks,
            edits=text_edits(sorted((*edits, *outcome.adapted), key=lambda edit: (edit.path, edit.start))),
            by_hand=outcome.by_hand,
            notes=outcome.notes,
            cuts_us=dict(outcome.cuts_us),
            proved=not outcome.reason,
            reason=outcome.reason,
            parameters_added=after.graph.parameter_count - before.graph.parameter_count,
        )


def _is_the_same(bench: Bench, graph: Graph) -> bool:
    sizes = realized_sizes(bench.dims, graph)
    return sizes is not None and all(size == group.size for group, size in sizes.items())


def _resize(bench: Bench, outcome: Outcome) -> Made:
    """What is made with a fix that changes sizes."""
    resizing = Resizing(bench, outcome.step, outcome.before)
    result = resizing.run()
    if isinstance(result, Refused):
        outcome.reason, outcome.by_hand = result.reason, result.by_hand
        return outcome.before
    outcome.after, outcome.reason, outcome.notes = result, "", resizing.notes
    outcome.adapted = tuple(edit for edit in result.cuts if edit not in outcome.before.cuts)
    return result


def _adapt(bench: Bench, outcomes: Sequence[Outcome], made: Made) -> Made:
    """With calls adapted that depend on a size: logits cut back, and scales of attention."""
    if made.cuts:
        cut = with_calls(bench, made, made.cuts)
        if isinstance(cut, str):
            return _none_made(outcomes, f"with all edits, outputs cannot be cut back: {cut}")
        made = cut
        for outcome in outcomes:
            outcome.cuts_us = made.cuts_us if outcome.adapted else {}
    known: dict[Edit, None] = {}
    scales: dict[int, tuple[Edit, ...]] = {}
    for index, outcome in enumerate(outcomes):
        if outcome.after.sizes != outcome.before.sizes:
            edits, by_hand = scaled_attention(bench.context.graph, outcome.after.graph, bench.texts)
            told = {item for other in outcomes for item in other.by_hand}
            outcome.by_hand += tuple(item for item in by_hand if item not in told)
            scales[index] = tuple(edit for edit in edits if edit not in known)
            known.update(dict.fromkeys(edits))
    if not known:
        return made
    scaled = with_calls(bench, made, (*made.cuts, *known))
    for index, edits in scales.items():
        if isinstance(scaled, str):
            outcomes[index].by_hand += tuple(_not_proved(edit, scaled) for edit in edits)
        else:
            outcomes[index].adapted += edits
    return made


def _none_made(outcomes: Sequence[Outcome], problem: str) -> Made:
    for outcome in outcomes:
        outcome.after = outcome.before = outcomes[0].before
        outcome.reason, outcome.adapted = outcome.reason or problem, ()
    return outcomes[0].before


def _not_proved(edit: Edit, problem: str) -> ByHand:
    what = f"{edit.replacement.strip(' ,')} is needed here, but could not be proved: {problem}"
    return ByHand(what, *line_at(edit.path, edit.start[0]))


def _loads(bench: Bench) -> tuple[ByHand, ...]:
    what = "loads weights: those saved before have the old sizes, tclint pad carries them over"
    return tuple(ByHand(what, *line_at(*place)) for place in bench.unrun.loads())


def _weight_plan(made: Made, traced: Graph | None) -> Any:
    """How saved weights follow the new sizes; None where none changes.

    Args:
        made: with all that changes sizes.
        traced: the model alone, without the loss that the settings put behind it.
    """
    if not made.sizes or traced is None:
        return None
    dims = CoupledDims(traced)
    sizes = realized_sizes(dims, replace(made.graph, ops=made.graph.ops[: len(traced.ops)])) or {}
    grown = {group: size for group, size in sizes.items() if group.parameters and size > group.size}
    try:
        return weight_plan(dims, grown).to_json() if grown else None
    except DimsUnresolved:
        return None


def _other_interface(before: Graph, after: Graph) -> str | None:
    """How a rewritten model differs from the one before it for its callers; None: in nothing."""
    if [spec.shape for spec in before.outputs] != [spec.shape for spec in after.outputs]:
        return "the edited model returns other shapes"
    theirs = {parameter.name.removeprefix("_orig_mod."): parameter.shape for parameter in after.parameters}
    ours = {parameter.name.removeprefix("_orig_mod."): parameter.shape for parameter in before.parameters}
    added = [name for name, shape in theirs.items() if ours.get(name) != shape]
    return f"the edited model has another {added[0]}" if added else None
