"""What changed between two reports: findings that are new, gone or different, and metrics that moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tclint.config.settings import FailOn
from tclint.core.finding import LEVEL_ORDER

Document = Mapping[str, Any]

HIGHER_IS_WORSE: dict[str, bool] = {
    "step_time_us": True,
    "memory_bytes": True,
    "readiness_percent": False,
    "tensor_core_time_percent": False,
    "aligned_flops_percent": False,
}
"""Metrics that can regress; shares move by points, the others by percent of the old value."""

SHARES = frozenset({"readiness_percent", "tensor_core_time_percent", "aligned_flops_percent"})

SHOWN_ONLY = ("step_flops", "forward_flops", "parameters", "amdahl_ceiling")
"""Metrics whose change is worth a line but good or bad by the model's own purpose."""

SAME_PERCENT = 0.01
"""Smaller moves are rounding."""


@dataclass(frozen=True, slots=True)
class ChangedFinding:
    """The same problem (equal fingerprint) with another level, message or gain."""

    old: Document
    new: Document
    what: tuple[str, ...]
    """'level', 'message', 'gain'."""


@dataclass(frozen=True, slots=True)
class MetricDelta:
    """One metric that moved."""

    name: str
    unit: str
    target: str | None
    gpu: str | None
    precision: str | None
    mode: str | None
    old: float | None
    new: float | None
    change: float | None
    """Points for shares, percent of the old value for others; None where one side has no value."""
    is_regression: bool

    @property
    def is_share(self) -> bool:
        return self.name in SHARES

    @property
    def where(self) -> str:
        """'a100-sxm4-80gb, fp16, train': the dimensions that apply, without the target."""
        return ", ".join(part for part in (self.gpu, self.precision, self.mode) if part)


@dataclass(frozen=True, slots=True)
class Diff:
    """Everything that changed, the worst first."""

    new: tuple[Document, ...]
    fixed: tuple[Document, ...]
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


def diff(
    old: Document, new: Document, *, threshold_percent: float = 1.0, fail_on: FailOn = "warning"
) -> Diff:
    """Compare two reports (documents of `tclint.report.load.load_report`).

    Args:
        threshold_percent: a metric that gets worse by more is a regression; percent of the old value,
            points for shares. A model that was traced with other inputs has no regressions.
        fail_on: a new finding of this level or above is a regression, and so is one that rose to it;
            'never': metrics alone decide.
    """
    added, fixed, changed, unchanged = _findings(old["findings"], new["findings"])
    incomparable = _other_inputs(old, new)
    deltas = tuple(_metrics(old["metrics"], new["metrics"], threshold_percent, incomparable))
    regressions = [
        *_finding_regressions(added, changed, fail_on),
        *(_sentence(delta) for delta in deltas if delta.is_regression),
        *_lost_targets(old, new),
    ]
    return Diff(
        new=tuple(added),
        fixed=tuple(fixed),
        changed=tuple(changed),
        unchanged=unchanged,
        metrics=tuple(sorted(deltas, key=lambda delta: not delta.is_regression)),
        notes=tuple(_notes(old, new)),
        regressions=tuple(regressions),
    )


def _findings(
    old: Sequence[Document], new: Sequence[Document]
) -> tuple[list[Document], list[Document], list[ChangedFinding], int]:
    """New, fixed, changed and the number of equal findings.

    One rule can find the same thing twice in one place, so equal fingerprints are paired in order.
    """
    waiting: dict[tuple[str, str | None], list[Document]] = defaultdict(list)
    for finding in old:
        waiting[_key(finding)].append(finding)
    added, changed, unchanged = [], [], 0
    for finding in new:
        before = waiting[_key(finding)]
        if not before:
            added.append(finding)
            continue
        what = _differences(before[0], finding)
        if what:
            changed.append(ChangedFinding(before[0], finding, what))
        else:
            unchanged += 1
        del before[0]
    left = {id(finding) for findings in waiting.values() for finding in findings}
    return added, [finding for finding in old if id(finding) in left], changed, unchanged


def _key(finding: Document) -> tuple[str, str | None]:
    return finding["fingerprint"], finding["target"]


def _differences(old: Document, new: Document) -> tuple[str, ...]:
    what = [name for name in ("level", "message") if old[name] != new[name]]
    before, after = best_gain_percent(old), best_gain_percent(new)
    moved = (before is None) != (after is None) or (
        before is not None and after is not None and abs(after - before) >= 0.1
    )
    return tuple([*what, "gain"] if moved else what)


def best_gain_percent(finding: Document) -> float | None:
    """The largest predicted gain of a finding over its GPUs; None where it is unknown."""
    effect = finding["effect"]
    if not isinstance(effect, Mapping) or "unknown" in effect:
        return None
    gains = [priced.get("gain_percent") for priced in effect.values() if isinstance(priced, Mapping)]
    known = [gain for gain in gains if isinstance(gain, int | float)]
    return max(known, default=None)


def _metrics(
    old: Sequence[Document], new: Sequence[Document], threshold: float, incomparable: frozenset[str]
) -> Iterator[MetricDelta]:
    before = {_metric_key(row): row for row in old if row["rule"] is None and row["level"] is None}
    for row in new:
        name = row["name"]
        known = before.get(_metric_key(row))
        if known is None or row["rule"] is not None or row["level"] is not None:
            continue
        if name not in HIGHER_IS_WORSE and name not in SHOWN_ONLY:
            continue
        delta = _delta(row, known["value"], row["value"], threshold)
        if delta is not None:
            yield replace(delta, is_regression=delta.is_regression and row["target"] not in incomparable)


def _other_inputs(old: Document, new: Document) -> frozenset[str]:
    """Targets that were traced with other inputs."""
    before = {entry["target"]: entry["inputs"] for entry in old["entries"]}
    return frozenset(
        entry["target"]
        for entry in new["entries"]
        if entry["target"] in before and before[entry["target"]] != entry["inputs"]
    )


def _metric_key(row: Document) -> tuple[Any, ...]:
    return tuple(row[part] for part in ("name", "target", "gpu", "precision", "mode"))


def _delta(row: Document, old: float | None, new: float | None, threshold: float) -> MetricDelta | None:
    name = row["name"]
    change: float | None = None
    is_regression = False
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
        worse = HIGHER_IS_WORSE.get(name)
        if worse is not None and change is not None:
            is_regression = (change if worse else -change) > threshold
    # What could be computed and now cannot is news, but no regression of the model.
    return MetricDelta(
        name, row["unit"], row["target"], row["gpu"], row["precision"], row["mode"], old, new, change,
        is_regression,
    )  # fmt: skip


def _finding_regressions(
    added: Sequence[Document], changed: Sequence[ChangedFinding], fail_on: FailOn
) -> Iterator[str]:
    if fail_on == "never":
        return
    limit = LEVEL_ORDER[fail_on]
    for finding in added:
        if _rank(finding["level"]) <= limit:
            yield f"new {finding['level']}: {finding['code']} {finding['name']} at {place(finding)}"
    for change in changed:
        rose = _rank(change.new["level"]) < _rank(change.old["level"])
        if rose and _rank(change.new["level"]) <= limit:
            finding = change.new
            yield f"now {finding['level']}: {finding['code']} {finding['name']} at {place(finding)}"


def _rank(level: str) -> int:
    return {str(known): order for known, order in LEVEL_ORDER.items()}.get(level, len(LEVEL_ORDER))


def place(finding: Document) -> str:
    """'model.py:7 (lm_head)'."""
    location = finding["location"]
    layer = location.get("module_path")
    return f"{location.get('path')}:{location.get('line')}" + (f" ({layer})" if layer else "")


def _sentence(delta: MetricDelta) -> str:
    unit = "points" if delta.is_share else "%"
    return f"{delta.name} of {delta.target}, {delta.where}: {delta.change or 0.0:+.3g} {unit}"


def _lost_targets(old: Document, new: Document) -> Iterator[str]:
    """A model that was priced and now fails would otherwise look like an improvement."""
    traced = {entry["target"] for entry in old["entries"]}
    for error in new["errors"]:
        if error.get("target") in traced:
            yield f"{error['target']} can no longer be linted: {error.get('message', '')}"


def _notes(old: Document, new: Document) -> Iterator[str]:
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
