"""What several targets show alike is one finding: `net.py:Net` and `net.py:build`, which returns one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tclint.core.finding import Finding, Location


def joined(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in their order, equal ones of different targets as the first of them, which names all."""
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
    """A finding for every target of every finding, as before they were joined."""
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
        # The whole model: each target names the line of its own builder or class.
        location = Location(location.path, 1)
    return replace(finding, target=None, also_targets=(), location=location)
