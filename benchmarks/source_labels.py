"""Precision and recall of the source rules on labelled scripts.

A comment `# AMP003: flag` says that the rule must report this line, `# AMP003: quiet` that it must not. A
finding on any line without a `flag` label counts as a false alarm.

    python benchmarks/source_labels.py [FOLDER ...]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from tclint.config.settings import Settings
from tclint.core.rule import CRASH_CODE
from tclint.engine.rules.registry import all_rules
from tclint.engine.sources.lint import lint
from tclint.source.source_rule import SourceRule

DEFAULT_FOLDER = Path(__file__).parent.parent / "tests" / "source" / "labelled"
LABEL = re.compile(r"\b([A-Z]{3}\d{3}): (flag|quiet)")
ALSO_HERE = ("not scaled here either", "here as well")
"""One finding of AMP001 or AMP014 lists further places as related ones."""


def labels(path: Path) -> dict[tuple[str, int], bool]:
    """(code, line) -> whether it must be reported."""
    return {
        (code, number): verdict == "flag"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for code, verdict in LABEL.findall(line)
    }


HYGIENE = frozenset(
    [
        "AMP014",
        "AMP016",
        "ARC012",
        "ARC017",
        "RUN006",
        "RUN007",
        "RUN008",
        "RUN012",
        "RUN014",
        "RUN015",
        "RUN016",
    ]
)
"""Rules that have something to say about many scripts written for others: only files with a label of such a
rule are asked about it."""


def checked_in(expected: dict[tuple[str, int], bool], codes: set[str]) -> set[str]:
    """The rules that a file speaks about."""
    return {code for code in codes if code not in HYGIENE or any(label == code for label, _ in expected)}


def reported(path: Path, codes: set[str]) -> set[tuple[str, int]]:
    """(code, line) of the findings of these rules."""
    rules = [rule() for rule in all_rules() if issubclass(rule, SourceRule) and rule.code in codes]
    result = lint([str(path)], rules, Settings())
    if result.skipped:
        raise SystemExit(f"{path} was skipped: {result.skipped[0].reason}")
    found = {(finding.code, finding.location.line) for finding in result.findings}
    if any(code == CRASH_CODE for code, _ in found):
        raise SystemExit(f"{path}: {next(f.message for f in result.findings if f.code == CRASH_CODE)}")
    for finding in result.findings:
        found.update(
            (finding.code, related.location.line)
            for related in finding.related
            if any(words in related.message for words in ALSO_HERE)
        )
    return found


def main() -> int:
    """Print one line per rule and one for all; exit 1 when a label is missed or there is a false alarm."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[DEFAULT_FOLDER])
    arguments = parser.parse_args()
    files = sorted(path for folder in arguments.folders for path in folder.rglob("*.py"))
    known = {path: labels(path) for path in files}
    codes = {code for found in known.values() for code, _ in found}
    counts: dict[str, Counter[str]] = {code: Counter() for code in codes}
    for path, expected in known.items():
        found = reported(path, checked_in(expected, codes))
        for code, line in found | set(expected):
            wanted = expected.get((code, line), False)
            hit = (code, line) in found
            counts[code]["labels"] += (code, line) in expected
            counts[code]["true"] += hit and wanted
            counts[code]["false"] += hit and not wanted
            counts[code]["missed"] += wanted and not hit
            if hit != wanted:
                print(f"{path}:{line}: {code} {'false alarm' if hit else 'missed'}", file=sys.stderr)
    total: Counter[str] = Counter()
    print(
        f"{'rule':8}{'labels':>8}{'flag':>6}{'true':>6}{'false':>7}{'missed':>8}{'precision':>11}{'recall':>8}"
    )
    for code in sorted(counts):
        total.update(counts[code])
        print(row(code, counts[code]))
    print(row("all", total))
    return int(bool(total["false"] or total["missed"]))


def row(name: str, count: Counter[str]) -> str:
    found, wanted = count["true"] + count["false"], count["true"] + count["missed"]
    precision = f"{count['true'] / found:.3f}" if found else "-"
    recall = f"{count['true'] / wanted:.3f}" if wanted else "-"
    return (
        f"{name:8}{count['labels']:8}{wanted:6}{count['true']:6}{count['false']:7}{count['missed']:8}"
        f"{precision:>11}{recall:>8}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
