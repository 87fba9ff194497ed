"""Merges the findings of a group into one, except those that a comment on their own line silences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tclint.core.finding import Finding, Related
from tclint.core.units import plural


def gathered(findings: Iterable[Finding], is_silenced: Callable[[Finding], bool]) -> list[Finding]:
    """The findings with each group of a rule merged into its first finding, which names the other places."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    alone: list[Finding] = []
    for finding in findings:
        if finding.group and not is_silenced(finding):
            groups.setdefault((finding.code, finding.group), []).append(finding)
        else:
            alone.append(finding)
    return [*alone, *(_as_one(group) for group in groups.values())]


def _as_one(group: list[Finding]) -> Finding:
    paths = list(dict.fromkeys(finding.location.path for finding in group))
    first, *others = sorted(
        group, key=lambda it: (paths.index(it.location.path), it.location.line, it.location.column)
    )
    if not others:
        return first
    return replace(
        first,
        message=f"{first.message} The same goes for {plural(len(others), 'more place')}.",
        related=(
            *first.related,
            *(Related(other.location, "here as well", is_alike=True) for other in others),
        ),
        evidence={**first.evidence, "lines": sorted({finding.location.line for finding in group})},
    )
