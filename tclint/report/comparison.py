"""What changed between two reports: findings that are new, gone or different, and metrics that moved."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tclint.config.budget import DEFAULT_BUDGET, Budget
from tclint.config.settings import FailOn
from tclint.core.finding import LEVEL_ORDER
from tclint.core.text import without_lines
from tclint.report.gate import (
    SHARES,
    MetricDelta,
    faster_targets,
    is_left_to_gain,
    judged,
    regressions,
    targets_of,
)

Json = Mapping[str, Any]

COMPARED = (
    "step_time_us", "readiness_percent", "memory_bytes", "tensor_core_time_percent", "aligned_flops_percent",
    "step_flops", "forward_flops", "parameters", "amdahl_ceiling",
)  # fmt: skip
"""Metrics whose change is worth a line."""

SAME_PERCENT = 0.01
"""Smaller moves are rounding."""


@dataclass(frozen=True, slots=True)
class ChangedFinding:
    """The same problem (equal fingerprint) with another level, message or gain."""

    old: Json
    new: Json
    what: tuple[str, ...]
    """'level', 'message', 'gain'."""


@dataclass(frozen=True, slots=True)
class Diff:
    """Everything that changed, the worst first."""

    new: tuple[Json, ...]
    fixed: tuple[Json, ...]
    changed: tuple[ChangedFinding, ...]
    unchanged: int
    metrics: tuple[MetricDelta, ...]
    notes: tuple[str, ...]
    """Why the two reports may differ for another reason than the model."""
    regressions: tuple[str, ...]
    """One sentence each; empty: exit code 0."""

    @property
    def exit_code(self) -> Literal[0, 1]:
        return 1 if self.regressions else 0


def diff(old: Json, new: Json, *, budget: Budget = DEFAULT_BUDGET, fail_on: FailOn = "warning") -> Diff:
    """Compare two reports (documents of `tclint.report.saved.load_report`).

    Args:
        budget: by how much models may get worse, each in the scenario that it is run in. A model that was
            traced with other inputs has no regressions.
        fail_on: new findings of this level or above count, and so do those that rose to it; 'never':
            metrics alone decide.
    """
    added, fixed, changed, unchanged = _findings(old["findings"], new["findings"])
    incomparable = _other_inputs(old, new)
    deltas = list(_metrics(old, new))
    compared = [delta for delta in deltas if delta.target not in incomparable]
    verdicts = {id(delta): verdict for delta, verdict in zip(compared, judged(compared, budget), strict=True)}
    deltas = [verdicts.get(id(delta), delta) for delta in deltas]
    faster = faster_targets(compared)
    left_to_gain = [finding for finding in added if is_left_to_gain(finding, faster)]
    counting = list(_counting([one for one in added if one not in left_to_gain], changed, fail_on))
    return Diff(
        new=tuple(added),
        fixed=tuple(fixed),
        changed=tuple(changed),
        unchanged=unchanged,
        metrics=tuple(sorted(deltas, key=lambda delta: (not delta.is_regression, not delta.is_gated))),
        notes=(*_notes(old, new), *_left_to_gain(left_to_gain)),
        regressions=(
            *regressions(deltas, counting if len(counting) > budget.new_findings else ()),
            *_lost_targets(old, new),
        ),
    )


def _findings(
    old: Sequence[Json], new: Sequence[Json]
) -> tuple[list[Json], list[Json], list[ChangedFinding], int]:
    """New, fixed, changed and the number of equal findings.

    A finding of several models is new, or fixed, of those models that it was not, or is no more, found in.
    One rule can find the same thing twice in one place, so equal fingerprints are paired in order.
    """
    waiting: dict[tuple[str, str | None], list[Json]] = defaultdict(list)
    for finding in old:
        for target in targets_of(finding):
            waiting[finding["fingerprint"], target].append(finding)
    added, changed, unchanged = [], [], 0
    for finding in new:
        before: list[Json] = []
        missing: list[str | None] = []
        for target in targets_of(finding):
            known = waiting[finding["fingerprint"], target]
            if known:
                before.append(known.pop(0))
            else:
                missing.append(target)
        if missing:
            added.append(_of(finding, missing))
        if not before:
            continue
        what = _differences(before[0], finding)
        if what:
            changed.append(ChangedFinding(before[0], finding, what))
        else:
            unchanged += 1
    left: dict[int, list[str | None]] = defaultdict(list)
    for (_, target), findings in waiting.items():
        for finding in findings:
            left[id(finding)].append(target)
    return (
        added,
        [_of(finding, left[id(finding)]) for finding in old if id(finding) in left],
        changed,
        unchanged,
    )


def _of(finding: Json, targets: Sequence[str | None]) -> Json:
    """A finding as it concerns some of its models."""
    if len(targets) == len(targets_of(finding)):
        return finding
    return {**finding, "target": targets[0], "targets": list(targets)}


def _differences(old: Json, new: Json) -> tuple[str, ...]:
    what = ["level"] if old["level"] != new["level"] else []
    if without_lines(old["message"]) != without_lines(new["message"]):
        what.append("message")
    before, after = best_gain_percent(old), best_gain_percent(new)
    moved = (before is None) != (after is None) or (
        before is not None and after is not None and abs(after - before) >= 0.1
    )
    return tuple([*what, "gain"] if moved else what)


def best_gain_percent(finding: Json) -> float | None:
    """The largest predicted gain of a finding over its GPUs; None where it is unknown."""
    effect = finding["effect"]
    if not isinstance(effect, Mapping) or "unknown" in effect:
        return None
    gains = [priced.get("gain_percent") for priced in effect.values() if isinstance(priced, Mapping)]
    known = [gain for gain in gains if isinstance(gain, int | float)]
    return max(known, default=None)


def _metrics(old: Json, new: Json) -> Iterator[MetricDelta]:
    before = {key: row["value"] for key, _, row in _compared(old)}
    for key, is_own, row in _compared(new):
        delta = _delta(row, before[key], row["value"], is_own) if key in before else None
        if delta is not None:
            yield delta


def _compared(document: Json) -> Iterator[tuple[tuple[Any, ...], bool, Json]]:
    """Rows that are compared, each behind what it is compared by, and whether it is of the scenario that its
    model is run in: that one is compared also where its precision has changed."""
    precisions = _precisions(document)
    for row in document["metrics"]:
        if row["name"] in COMPARED and row["rule"] is None and row["level"] is None:
            is_own = row["precision"] in (None, precisions.get(row["target"]))
            key = (*(row[part] for part in ("name", "target", "gpu", "mode")), is_own or row["precision"])
            yield key, is_own, row


def _precisions(document: Json) -> dict[str, str | None]:
    return {entry["target"]: entry.get("precision") for entry in document["entries"]}


def _other_inputs(old: Json, new: Json) -> frozenset[str]:
    """Targets that were traced with other inputs."""
    before = {entry["target"]: entry["inputs"] for entry in old["entries"]}
    return frozenset(
        entry["target"]
        for entry in new["entries"]
        if entry["target"] in before and before[entry["target"]] != entry["inputs"]
    )


def _delta(row: Json, old: float | None, new: float | None, is_own: bool) -> MetricDelta | None:
    name = row["name"]
    change: float | None = None
    if old is None and new is None:
        return None
    if old is not None and new is not None:
        if name in SHARES:
            change = new - old
        elif old != 0:
            change = 100.0 * (new - old) / abs(old)
        elif new == 0:
            change = 0.0
        if change is not None and abs(change) < SAME_PERCENT:
            return None
    # What could be computed and now cannot is news, but no regression of the model.
    where = {part: row[part] for part in ("unit", "target", "gpu", "precision", "mode")}
    return MetricDelta(name, **where, old=old, new=new, change=change, is_own=is_own)


def _counting(
    added: Sequence[Json], changed: Sequence[ChangedFinding], fail_on: FailOn
) -> Iterator[tuple[Json, str]]:
    """Findings that a budget counts, each with how it is said."""
    if fail_on == "never":
        return
    limit = LEVEL_ORDER[fail_on]
    for finding in added:
        if _rank(finding["level"]) <= limit:
            yield finding, f"new {_named(finding)}"
    for change in changed:
        rose = _rank(change.new["level"]) < _rank(change.old["level"])
        if rose and _rank(change.new["level"]) <= limit:
            yield change.new, f"now {_named(change.new)}"


def _named(finding: Json) -> str:
    return f"{finding['level']}: {finding['code']} {finding['name']} at {place(finding)}"


def _rank(level: str) -> int:
    return {str(known): order for known, order in LEVEL_ORDER.items()}.get(level, len(LEVEL_ORDER))


def place(finding: Json) -> str:
    """'model.py:7 (lm_head)'."""
    location = finding["location"]
    layer = location.get("module_path")
    return f"{location.get('path')}:{location.get('line')}" + (f" ({layer})" if layer else "")


def _lost_targets(old: Json, new: Json) -> Iterator[str]:
    """A model that was priced and now fails would otherwise look like an improvement."""
    traced = {entry["target"] for entry in old["entries"]}
    for error in new["errors"]:
        if error.get("target") in traced:
            yield f"{error['target']} can no longer be linted: {error.get('message', '')}"


def _left_to_gain(findings: Sequence[Json]) -> Iterator[str]:
    by_target = Counter(target for finding in findings for target in targets_of(finding))
    for target, number in by_target.items():
        news = "new finding is" if number == 1 else f"{number} new findings are"
        yield f"{target} got faster: its {news} what is left to gain there, and no regression."


def _notes(old: Json, new: Json) -> Iterator[str]:
    before, after = old["tool"], new["tool"]
    if before.get("version") != after.get("version"):
        yield f"The reports are of tclint {before.get('version')} and {after.get('version')}."
    elif before.get("hash") != after.get("hash"):
        yield "The reports are of different builds of tclint: predictions may differ for that reason."
    torches = [document.get("provenance", {}).get("torch") for document in (old, new)]
    if torches[0] != torches[1]:
        yield f"The models were traced with torch {torches[0]} and {torches[1]}."
    entries = {entry["target"]: entry for entry in old["entries"]}
    for target in sorted(_other_inputs(old, new)):
        yield f"{target} was traced with other inputs: its metrics cannot be compared."
    now = _precisions(new)
    for target, precision in _precisions(old).items():
        if target in now and now[target] != precision:
            yield f"{target} ran in {precision} and now runs in {now[target]}: these two are compared."
    targets = {entry["target"] for entry in new["entries"]}
    missing = [target for target in entries if target not in targets]
    if missing:
        yield f"Only the old report has {', '.join(missing)}."
    extra = [target for target in targets if target not in entries]
    if extra:
        yield f"Only the new report has {', '.join(sorted(extra))}."
    settings = [document.get("settings", {}) for document in (old, new)]
    differing = [name for name in settings[0] if settings[0][name] != settings[1].get(name)]
    if differing:
        yield f"The settings differ: {', '.join(sorted(differing))}."
