"""Finds where a size that a fix changes is written, if the layers' own lines only use it by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tclint.analysis.change import Change
from tclint.core.finding import Finding, Location, Related
from tclint.edits.sizes.written import Written, written_in
from tclint.graph.ops import Graph
from tclint.source.project.scripts import Scripts

_SMALLEST = 32
"""Smaller numbers have many other meanings in a file."""
_MOST_PLACES = 3


def with_origins(findings: Sequence[Finding], graph: Graph) -> list[Finding]:
    """The findings with the places where their size is written as first related places.

    This is done only if all these places use one name: one number under two names may be two sizes.
    """
    changed = [
        (finding, sizes)
        for finding in findings
        if isinstance(finding.change, Change)
        and (sizes := {group.size for group, _ in finding.change.sizes if group.size >= _SMALLEST})
    ]
    if not changed:
        return list(findings)
    texts = _texts({finding.location.path for finding, _ in changed}, graph.metadata.get("source_files", ()))
    places = _places({size for _, sizes in changed for size in sizes}, texts)
    origins = {id(finding): _origins(finding, sorted(sizes), places) for finding, sizes in changed}
    return [
        replace(finding, related=(*origins.get(id(finding), ()), *finding.related)) for finding in findings
    ]


def _texts(first: set[str], read: Iterable[str]) -> dict[str, str]:
    """The user's files with these findings, and those that they import among the files that the target
    read."""
    texts = {}
    for path in sorted({*first, *read}):
        if path.endswith(".py") and not os.path.relpath(path).startswith(os.pardir):
            try:
                with open(path, encoding="utf-8") as file:
                    texts[path] = file.read()
            except (OSError, ValueError):
                continue
    reached = Scripts({path: text.encode() for path, text in texts.items()}).reached_from(first)
    return {path: text for path, text in texts.items() if path in reached}


def _places(sizes: set[int], texts: dict[str, str]) -> dict[int, list[Written]]:
    """Size -> the numbers in the texts that have it."""
    found: dict[int, list[Written]] = {size: [] for size in sizes}
    for path, text in texts.items():
        if any(str(size) in text for size in sizes):
            for item in written_in(path, text).written:
                if item.kind == "number" and item.value in found:
                    found[item.value].append(item)
    return found


def _origins(finding: Finding, sizes: Iterable[int], places: dict[int, list[Written]]) -> list[Related]:
    listed = {(one.path, one.line) for one in (finding.location, *(it.location for it in finding.related))}
    return [
        Related(Location(item.path, *item.start), f"`{item.name}` is {size} here")
        for size in sizes
        if len({item.name for item in places[size]}) == 1
        for item in places[size][:_MOST_PLACES]
        if item.name and (item.path, item.start[0]) not in listed
    ]
