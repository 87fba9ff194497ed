"""Precision and recall of the source rules on draws of public training scripts (benchmarks/draws/README.md).

    python benchmarks/source_draws.py --repositories FOLDER --draw 1

A point is found when a finding of its rule has its line, or a related line, among the point's. Findings that
are no point are listed: whether they are true is for a reader to say, in benchmarks/draws/others.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
from collections import Counter
from pathlib import Path

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.core.rule import CRASH_CODE
from tclint.engine.rule_registry import all_rules
from tclint.engine.source_pass import lint
from tclint.source.source_rule import SourceRule

DRAWS = Path(__file__).parent / "draws"
MAIN_RULES = re.compile(r"AMP0(0[1-9]|1[0347])|PRC00[1245]|FMT00[1-57]|RUN00[1239]|ARC00[123]")
"""Rules on what is wrong or slow wherever it is found."""


def rows(name: str) -> list[dict[str, str]]:
    path = DRAWS / name
    return list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []


def lines_of(finding: Finding) -> set[int]:
    """The finding's line and the related ones in the same file."""
    places = [finding.location, *(related.location for related in finding.related)]
    return {place.line for place in places if place.path == finding.location.path}


def main() -> int:
    """Print misses, findings beyond the points, and the figures; exit 1 where a rule crashed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repositories", type=Path, required=True)
    parser.add_argument("--draw", choices=("1", "2", "3"), required=True)
    arguments = parser.parse_args()
    selected = [rule() for rule in all_rules() if issubclass(rule, SourceRule) and rule.enabled_by_default]
    scripts = [row for row in rows("scripts.csv") if row["draw"] == arguments.draw]
    points = [row for row in rows("points.csv") if row["draw"] == arguments.draw]
    judged = {(row["repository"], row["path"], row["code"], row["line"]): row for row in rows("others.csv")}
    counts: Counter[str] = Counter()
    for script in scripts:
        repository, path = script["repository"], script["path"]
        file = arguments.repositories / repository.replace("/", "+") / path
        result = lint([str(file)], selected, Settings(cache=False))
        findings = [item for item in result.findings if os.path.samefile(item.location.path, file)]
        if result.skipped or any(item.code == CRASH_CODE for item in result.findings):
            print(f"{file}: skipped or crashed")
            return 1
        expected = [row for row in points if row["repository"] == repository and row["path"] == path]
        used: set[int] = set()
        for point in expected:
            wanted = {int(line) for line in point["lines"].split()}
            hits = {
                index
                for index, item in enumerate(findings)
                if item.code == point["code"] and lines_of(item) & wanted
            }
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
            verdict = judged.get((repository, path, item.code, str(item.location.line)))
            if index in used or (verdict and verdict["true"] == "yes"):
                counts["true"] += 1
            if index not in used:
                said = verdict["true"] if verdict else "not judged"
                print(
                    f"other   {repository}/{path}:{item.location.line}: {item.code} {item.message} [{said}]"
                )
    for name in ("main rules", "main", "minor", "all"):
        found, total = counts[f"{name} found"], counts[name]
        print(f"{name:10} {found:3} of {total:3} points{f'  {found / total:.2f}' if total else ''}")
    print(f"precision  {counts['true']:3} of {counts['findings']:3} findings")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
