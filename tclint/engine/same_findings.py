"""Merges equal findings of several targets or of several sets of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tclint.core.finding import Finding, Location
from tclint.engine.report import Entry


def mark_worst_case(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, in their order, with `is_worst_case` set on the least ready set of each target.

    Readiness is that on the first GPU; among equals, the longest step is the worst.
    """
    worst: dict[str, tuple[float, float, int]] = {}
    for index, entry in enumerate(entries):
        if not entry.input_set or not entry.metrics:
            continue
        metrics = next(iter(entry.metrics.values()))
        key = (metrics.readiness_percent, -metrics.step_time_us, index)
        base = base_target(entry)
        worst[base] = min(worst.get(base, key), key)
    marked = {index for _, _, index in worst.values()}
    return [
        replace(entry, is_worst_case=True) if index in marked else entry
        for index, entry in enumerate(entries)
    ]


def worst_of_sets(
    findings: Sequence[Finding], entries: Sequence[Entry], besides: Sequence[Finding] = ()
) -> list[Finding]:
    """The findings, keeping from several sets of inputs of one model only the one with the largest gain.

    Args:
        besides: findings listed elsewhere; equal ones are left out here.
    """
    bases: Mapping[str | None, str] = {
        entry.target: base_target(entry) for entry in entries if entry.input_set
    }

    def key_of(finding: Finding) -> object:
        base = bases.get(finding.target)
        if base is None:
            return id(finding)
        identity = finding.identity or finding.location.module_path
        return base, finding.code, finding.location, identity

    elsewhere = {key_of(finding) for finding in besides}
    kept: dict[object, Finding] = {}
    for finding in findings:
        key = key_of(finding)
        if key in elsewhere:
            continue
        other = kept.get(key)
        if other is None or _gain_us(finding) > _gain_us(other):
            kept[key] = finding
    return list(kept.values())


def base_target(entry: Entry) -> str:
    """The target as it was typed, without the name of the set of inputs."""
    return entry.target.removesuffix(f" [{entry.input_set}]") if entry.input_set else entry.target


def _gain_us(finding: Finding) -> float:
    return finding.effect.best_gain_us or 0.0


def joined(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in order, with equal ones of different targets merged into the first, which names all."""
    places: dict[object, list[int]] = {}
    kept: list[Finding] = []
    for finding in findings:
        known = places.setdefault((finding.fingerprint, finding.message), [])
        plain = _without_targets(finding)
        same = next((index for index in known if _is_another_target(kept[index], finding, plain)), None)
        if same is None:
            known.append(len(kept))
            kept.append(finding)
        else:
            kept[same] = replace(kept[same], also_targets=(*kept[same].also_targets, *finding.targets))
    return kept


def each_target(findings: Iterable[Finding]) -> Iterator[Finding]:
    """One finding for each target of each finding, as before `joined`."""
    for finding in findings:
        for target in finding.targets or (None,):
            yield replace(finding, target=target, also_targets=())


def _is_another_target(kept: Finding, finding: Finding, plain: Finding) -> bool:
    return (
        finding.target is not None
        and kept.target is not None
        and finding.target not in kept.targets
        and _without_targets(kept) == plain
    )


def _without_targets(finding: Finding) -> Finding:
    location = finding.location
    if location.module_path is None:
        # A finding about the whole model names the line of its target's own builder or class.
        location = Location(location.path, 1)
    return replace(finding, target=None, also_targets=(), location=location)
