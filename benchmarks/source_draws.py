"""Precision and recall of the source rules on draws of public training scripts (benchmarks/draws/README.md),
or of configuration files (benchmarks/recipes/README.md).

    python benchmarks/source_draws.py --repositories FOLDER --draw 1
    python benchmarks/source_draws.py --repositories FOLDER --draw 1 --labels benchmarks/recipes

A point is found when a finding of its rule has its line, or a related line, among the point's. Findings that
are no point are listed: whether they are true is for a reader to say, in benchmarks/draws/others.csv. Where a
point names lines of other files too, these are checked as well, but only what they say of the point counts.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tclint.config.settings import Settings
from tclint.core.finding import Finding, Location
from tclint.core.rule import CRASH_CODE
from tclint.engine.rules.registry import all_rules
from tclint.engine.sources.lint import lint
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.notebooks import Notebook

DRAWS = Path(__file__).parent / "draws"
MAIN_RULES = re.compile(r"AMP0(0[1-9]|1[0347])|PRC00[1245]|FMT00[1-57]|RUN00[1239]|ARC00[123]")
"""Rules on what is wrong or slow wherever it is found."""


def rows(name: str, labels: Path = DRAWS) -> list[dict[str, str]]:
    path = labels / name
    return list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []


@dataclass(frozen=True, slots=True)
class Found:
    """A finding with its places as points name them: a path from the repository's root, and a line."""

    finding: Finding
    place: tuple[str, int]
    related: frozenset[tuple[str, int]]

    def hits(self, point: Mapping[str, str]) -> bool:
        """Whether this is the point's rule on one of the point's lines."""
        wanted = wanted_places(point)
        return self.finding.code == point["code"] and (
            self.place in wanted or not wanted.isdisjoint(self.related)
        )


def wanted_places(point: Mapping[str, str]) -> set[tuple[str, int]]:
    """Where a point may be reported: a number is a line of its script, PATH:NUMBER one of another file."""
    places: set[tuple[str, int]] = set()
    for token in point["lines"].split():
        path, _, line = token.rpartition(":")
        places.add((path or point["path"], int(line)))
    return places


def check(root: Path, path: str, rules: Sequence[SourceRule]) -> list[Found] | str:
    """The findings of a file of the repository at `root`; a sentence where tclint could not look at it."""
    result = lint([str(root / path)], rules, Settings(cache=False))
    if any(item.code == CRASH_CODE for item in result.findings):
        raise RuntimeError(f"a rule crashed on {root / path}")
    unread = [item for item in result.skipped if not item.is_part]
    if unread:
        return unread[0].reason

    def place(location: Location) -> tuple[str, int]:
        notebook: Notebook | None = result.notebooks.get(location.path)
        line = notebook.place(location.line, location.column).line if notebook is not None else location.line
        file = Path(location.path).resolve()
        inside = file.is_relative_to(root)
        return (file.relative_to(root).as_posix() if inside else location.path), line

    found = [
        Found(item, place(item.location), frozenset(place(related.location) for related in item.related))
        for item in result.findings
    ]
    return [item for item in found if item.place[0] == path]


def main() -> int:
    """Print misses, findings beyond the points, and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repositories", type=Path, required=True)
    parser.add_argument("--draw", required=True, help="its number in scripts.csv")
    parser.add_argument(
        "--labels", type=Path, default=DRAWS, help="the folder with scripts.csv and points.csv"
    )
    arguments = parser.parse_args()
    labels: Path = arguments.labels
    selected = [rule() for rule in all_rules() if issubclass(rule, SourceRule) and rule.enabled_by_default]
    scripts = [row for row in rows("scripts.csv", labels) if row["draw"] == arguments.draw]
    if not scripts:
        parser.error(f"{labels / 'scripts.csv'} has no draw {arguments.draw}")
    points = [row for row in rows("points.csv", labels) if row["draw"] == arguments.draw]
    judged = {
        (row["repository"], row["path"], row["code"], row["line"]): row for row in rows("others.csv", labels)
    }
    counts: Counter[str] = Counter()
    for script in scripts:
        repository, path = script["repository"], script["path"]
        root = (arguments.repositories / repository.replace("/", "+")).resolve()
        if not (root / path).is_file():
            print(f"skipped {repository}/{path}: it is not in {arguments.repositories}")
            continue
        expected = [row for row in points if row["repository"] == repository and row["path"] == path]
        with_rule = [row for row in expected if row["code"] != "-"]
        paths = dict.fromkeys(
            (path, *(place[0] for row in with_rule for place in sorted(wanted_places(row))))
        )
        findings: list[Found] = []
        for name in paths:
            outcome = check(root, name, selected)
            if isinstance(outcome, str):
                print(f"skipped {repository}/{name}: {outcome}")
                continue
            findings += (
                outcome if name == path else [item for item in outcome if any(map(item.hits, expected))]
            )
        used: set[int] = set()
        for point in expected:
            hits = {index for index, item in enumerate(findings) if item.hits(point)}
            used |= hits
            for name in (
                "all",
                point["weight"],
                *(("main rules",) if MAIN_RULES.match(point["code"]) else ()),
            ):
                counts[name] += 1
                counts[f"{name} found"] += bool(hits)
            if not hits:
                print(f"missed  {repository}/{path}:{point['lines']}: {point['code']} {point['point']}")
        for index, item in enumerate(findings):
            counts["findings"] += 1
            code, line = item.finding.code, item.place[1]
            verdict = judged.get((repository, path, code, str(line)))
            if index in used or (verdict and verdict["true"] == "yes"):
                counts["true"] += 1
            if index not in used:
                said = verdict["true"] if verdict else "not judged"
                print(f"other   {repository}/{path}:{line}: {code} {item.finding.message} [{said}]")
    for name in ("main rules", "main", "minor", "all"):
        found, total = counts[f"{name} found"], counts[name]
        print(f"{name:10} {found:3} of {total:3} points{f'  {found / total:.2f}' if total else ''}")
    print(f"precision  {counts['true']:3} of {counts['findings']:3} findings")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
