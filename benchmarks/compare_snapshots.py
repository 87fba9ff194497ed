"""What differs between two snapshots of compare_findings.py."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOLERANCE = 1e-3
"""Prices and figures differ above it. Sums in another order differ by far less."""
MOST_DIFFERING = 0.01
"""A larger share of targets that differ is a failure."""
SHOWN_PER_TARGET = 20
UNSTABLE = frozenset({"fingerprint", "graph_hash", "torch"})
"""Hashes of what is compared here anyway, and what the version of torch is."""

Record = dict[str, Any]


def read_snapshot(path: Path) -> dict[str, Record]:
    """Records by target; a line that a killed run left half written is cut off the file."""
    text = path.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text, encoding="utf-8")
    records = map(json.loads, text.splitlines())
    return {record["target"]: record for record in records}


def compare(
    old: dict[str, Record], new: dict[str, Record], only: str = "", *, common: bool = False
) -> tuple[list[str], int]:
    """Lines about each target that differs and about all, and the exit status.

    Args:
        only: compare targets whose name contains this.
        common: leave out targets that are in one snapshot only, which differ otherwise.
    """
    named = [name for name in sorted({**old, **new}) if only in name]
    names = [name for name in named if not common or (name in old and name in new)]
    if not names:
        return ["no target to compare"], 1
    lines: list[str] = []
    differing = 0
    for name in names:
        found = list(differences(old.get(name), new.get(name)))
        if found:
            differing += 1
            rest = len(found) - SHOWN_PER_TARGET
            lines += [name, *(f"  {line}" for line in found[:SHOWN_PER_TARGET])]
            lines += [f"  and {rest} more"] if rest > 0 else []
    for label, records in (("old", old), ("new", new)):
        hashes = {record["tclint"] for record in records.values()} - {""}
        if len(hashes) > 1:
            lines.append(f"the {label} snapshot was taken with {len(hashes)} different versions of tclint")
    failed = [name for name in names if all(records.get(name, {}).get("errors") for records in (old, new))]
    if failed:
        lines.append(f"failed in both, and so compared by their errors alone: {', '.join(failed)}")
    if len(names) < len(named):
        lines.append(f"left out, because one snapshot lacks them: {len(named) - len(names)} targets")
    same = len(names) - differing
    findings = sum(len(old[name]["findings"]) for name in names if name in old)
    lines.append(
        f"{same} of {len(names)} targets identical ({100 * same / len(names):.1f} %); "
        f"{findings} findings in the old snapshot"
    )
    return lines, int(differing > MOST_DIFFERING * len(names))


def differences(old: Record | None, new: Record | None) -> Iterator[str]:
    """What the new record of a target says otherwise."""
    if old is None or new is None:
        yield f"only in the {'new' if old is None else 'old'} snapshot"
        return
    if old["digest"] != new["digest"]:
        yield "the file itself differs between the snapshots"
    if old["errors"] != new["errors"]:
        yield f"error: {old['errors'] or 'none'} -> {new['errors'] or 'none'}"
    if len(old["entries"]) != len(new["entries"]):
        yield f"entries: {len(old['entries'])} -> {len(new['entries'])}"
    for before, after in zip(old["entries"], new["entries"], strict=False):
        for change in changes(before, after):
            yield f"figure   {change}"
    yield from _finding_differences(old["findings"], new["findings"])


def _finding_differences(old: list[Record], new: list[Record]) -> Iterator[str]:
    """Findings are the same by code and place; of several of one code at a place, the first is the first."""
    befores, afters = _by_key(old), _by_key(new)
    for key in sorted({**befores, **afters}):
        before, after = befores.get(key, []), afters.get(key, [])
        for lost in before[len(after) :]:
            yield f"lost     {key}: {lost['message']}"
        for added in after[len(before) :]:
            yield f"new      {key}: {added['message']}"
        for one, other in zip(before, after, strict=False):
            for change in changes(one, other):
                is_price = change.startswith(("effect", "evidence"))
                yield f"{'price   ' if is_price else 'changed '} {key}: {change}"


def _by_key(findings: list[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for finding in findings:
        place = finding["location"]
        words = (finding["code"], f"{place['path']}:{place['line']}", place["module_path"])
        found[" ".join(word for word in words if word)].append(finding)
    for same in found.values():
        same.sort(key=lambda finding: (finding["location"]["column"] or 0, finding["message"]))
    return found


def changes(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Leaves of two JSON values that differ: 'effect.a100.gain_us: 12.0 -> 14.0 (+16.67 %)'."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            if name not in UNSTABLE:
                yield from changes(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changes(before, after, f"{path}[{position}]")
    elif _is_number(old) and _is_number(new):
        if not math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            relative = f" ({100 * (new / old - 1):+.2f} %)" if old else ""
            yield f"{path}: {old} -> {new}{relative}"
    elif old != new and not (isinstance(old, str) and isinstance(new, str) and _same_text(old, new)):
        yield f"{path}: {old!r} -> {new!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_ROUNDED = re.compile(r"\d+\.\d+")


def _same_text(old: str, new: str) -> bool:
    """Whether two messages differ in the last digit of rounded numbers at most."""
    if _ROUNDED.sub("#", old) != _ROUNDED.sub("#", new):
        return False
    pairs = zip(_ROUNDED.findall(old), _ROUNDED.findall(new), strict=True)
    return all(
        abs(float(before) - float(after)) <= 1.01 * 10.0 ** -len(before.partition(".")[2])
        for before, after in pairs
    )
