"""How many priced padding findings `tclint fix` edits and proves.

    python benchmarks/fixes/run.py list --checkouts DIR    # writes findings.csv: what is to be fixed
    python benchmarks/fixes/run.py fix --checkouts DIR     # fixes every one of them, writes results.csv
    python benchmarks/fixes/run.py summary                 # the shares, from results.csv

Models are fixtures, fixtures and models of repositories with one size made odd, the hand-written styles of
padding_styles.py, and the models of benchmarks/inputs whose repository is checked out in DIR, as
DIR/owner+name or DIR/name. Findings are those that padding fixes and that gain at least 1 % of the step, on
an A100 in fp16; of kind `input` and `tokens` are sizes of the data, where zeros are appended. Nothing is
written to the repositories but a file that builds the model, and what is edited is put back. An edit is
wrong if the written files then give a model that does not build, has the finding still, or returns other
shapes. What the plan promises stands beside what linting the written files says (PROMISE_PERCENT).
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fixes_models import Model, missing, models

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.check import check
from tclint.engine.fixes.files import edited_files, write_files
from tclint.engine.fixes.plan import FixPlan
from tclint.engine.fixes.planner import plan_fixes
from tclint.engine.report import Report

HERE = Path(__file__).resolve().parent
FINDINGS = HERE / "findings.csv"
RESULTS = HERE / "results.csv"
AT_ONCE = 24
PROMISE_PERCENT = 0.5
"""How far apart, as a share of the step, the promised and the linted gain may be."""
FIELDS = ("source", "model", "kind", "code", "place", "padding", "gain_percent")
RESULT_FIELDS = (*FIELDS, "outcome", "why", "promised_us", "linted_us", "seconds")


def is_padding(finding: Finding) -> bool:
    """Whether the fix makes sizes larger, and its gain is known."""
    return bool(finding.evidence.get("padding")) and finding.effect.best_gain_percent is not None


def row_of(model: Model, finding: Finding) -> dict[str, Any]:
    place = finding.location.module_path or ""
    return {
        "source": model.source,
        "model": model.name,
        "kind": _kind(finding),
        "code": finding.code,
        "place": place,
        "padding": " ".join(f"{old}->{new}" for old, new in finding.evidence["padding"]),
        "gain_percent": f"{finding.effect.best_gain_percent:.2f}",
    }


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows are of one finding, whose new sizes may have changed."""
    fields = (field for field in FIELDS if field not in ("gain_percent", "padding"))
    return bool(_old_sizes(one) & _old_sizes(other)) and all(one[field] == other[field] for field in fields)


def _old_sizes(row: dict[str, Any]) -> set[str]:
    return {pair.partition("->")[0] for pair in row["padding"].split()}


def ordered(rows: Sequence[dict[str, Any]], wanted: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results in the order of the findings, whichever were made last."""
    return [row for item in wanted for row in rows if is_same(row, item)]


def _kind(finding: Finding) -> str:
    """'width'; 'input' and 'tokens', which are the data's, and are padded with zeros there."""
    if finding.code == "DIM009":
        return "tokens"
    return "input" if finding.evidence.get("input") else "width"


def checked(model: Model) -> Report:
    """The report on a model, from its folder."""
    model.write()
    os.chdir(model.folder)
    settings = Settings(gpus=("a100",), mode=model.mode, batch=model.batch, timeout_s=120.0)
    return check([model.target], settings)


def listed(found: Iterator[Model]) -> Iterator[dict[str, Any]]:
    """What is to be fixed."""
    done: set[str] = set()
    for batch in iter(lambda: list(islice(found, AT_ONCE)), []):
        for model, report in reports(batch):
            rows = [row_of(model, finding) for finding in report.findings if is_padding(finding)]
            if model.odd is not None:
                argument, size = model.odd
                if argument in done or report.errors:
                    continue
                done.add(argument)
                # The others are those of the model as it is.
                rows = [row for row in rows if f"{size}->" in row["padding"]]
            state = report.errors[0].message[:110] if report.errors else f"{len(rows)} findings"
            print(f"{model.source:12} {model.name:44} {state}", flush=True)
            yield from rows


def reports(batch: Sequence[Model]) -> Iterator[tuple[Model, Report]]:
    """The reports of several models: those of one folder, mode and batch are linted together."""
    for model in batch:
        model.write()
    kinds = dict.fromkeys((model.mode, model.batch) for model in batch)
    for mode, size in kinds:
        own = [model for model in batch if (model.mode, model.batch) == (mode, size)]
        targets = {str(model.folder / model.target): model for model in own}
        settings = Settings(gpus=("a100",), mode=mode, batch=size, timeout_s=120.0)
        found = check(list(targets), settings)
        for target, model in targets.items():
            yield (
                model,
                replace(
                    found,
                    findings=tuple(finding for finding in found.findings if target in finding.targets),
                    errors=tuple(error for error in found.errors if error.target == target),
                ),
            )


def fixed(found: Iterator[Model], wanted: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What came of each."""
    names = {row["model"] for row in wanted}
    for model in found:
        if model.name not in names:
            continue
        own = [row for row in wanted if row["model"] == model.name]
        report = checked(model)
        started = time.monotonic()
        plan = plan_fixes(report, model.target) if not report.errors else None
        seconds = time.monotonic() - started
        problem, linted_us = wrong_edit(model, plan, report) if plan is not None and plan.edits else ("", 0.0)
        promised_us = (
            [next(iter(step.step_time_us.values())) for step in plan.steps if step.proved] if plan else []
        )
        keys = {
            finding.fingerprint: row_of(model, finding) for finding in report.findings if is_padding(finding)
        }
        taken: set[str] = set()
        for row in own:
            same = [key for key, other in keys.items() if is_same(other, row)]
            if not same:
                # One that is told at another of its layers by now.
                others = (key for key, other in keys.items() if not any(is_same(other, it) for it in own))
                same = [
                    key
                    for key in others
                    if key not in taken and is_same({**keys[key], "place": row["place"]}, row)
                ][:1]
            taken.update(same)
            # The gain is today's: the list keeps the one that it was made with.
            gain = keys[same[0]]["gain_percent"] if same else row["gain_percent"]
            steps = [step for step in plan.steps if step.fingerprint in same] if plan is not None else []
            outcome, why = (
                "refused",
                report.errors[0].message if report.errors else "the finding is no more there",
            )
            if plan is not None and set(same) & set(plan.also_fixed) and not _pads(plan, row["padding"]):
                why = "it is gone with another fix, which pads nothing"
            elif plan is not None and set(same) & set(plan.also_fixed):
                outcome, why = ("wrong", problem) if problem else ("proved", "with another finding's edits")
            elif same and not steps:
                why = "in no plan: gains nothing, or does not fit, once other fixes are made"
            elif steps and steps[0].proved:
                outcome, why = ("wrong", problem) if problem else ("proved", f"{len(steps[0].edits)} edits")
            elif steps:
                why = steps[0].reason
            print(f"{model.name:40} {row['code']} {row['padding']:44.44} {outcome:8} {why[:150]}", flush=True)
            yield {
                **row,
                "gain_percent": gain,
                "outcome": outcome,
                "why": why,
                "promised_us": f"{promised_us[-1]:.2f}" if promised_us else "",
                "linted_us": f"{linted_us:.2f}" if linted_us else "",
                "seconds": f"{seconds:.0f}",
            }


def wrong_edit(model: Model, plan: FixPlan, before: Report) -> tuple[str, float]:
    """What is wrong with a plan's edits once they are written, and the step then: the model is linted again,
    from its folder.

    The files are then put back.
    """
    files = edited_files(plan)
    write_files(files)
    try:
        report = checked(replace(model, text=""))
        if report.errors:
            return report.errors[0].message, 0.0
        (metrics,) = report.entries[0].metrics.values()
        left = {finding.fingerprint for finding in report.findings if is_padding(finding)}
        still = [step for step in plan.steps if step.proved and step.fingerprint in left]
        if still:
            return f"{still[0].code} is still reported", metrics.step_time_us
        shapes, were = (
            [output.shape for output in entry.graph.outputs if entry.graph]
            for entry in (report.entries[0], before.entries[0])
        )
        problem = f"it returns {shapes}" if shapes != were and not _told(plan) else ""
        return problem, metrics.step_time_us
    finally:
        for file in files:
            Path(file.path).write_bytes(file.before)


def _pads(plan: FixPlan, padding: str) -> bool:
    """Whether a proved step changes one of these sizes ('100->104 300->304')."""
    old = _old_sizes({"padding": padding})
    return any(str(before) in old for step in plan.steps if step.proved for before, _ in step.sizes)


def _told(plan: FixPlan) -> bool:
    """Whether the plan says that logits have to be cut back by hand."""
    said = [item.what for step in plan.steps for item in step.by_hand]
    return any("before the loss" in what or "is needed here" in what for what in said)


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: Sequence[dict[str, Any]], fields: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """By source: how many are proved, refused, wrong."""
    lines = []
    for source in (*dict.fromkeys(row["source"] for row in rows), "all"):
        own = [row for row in rows if source in (row["source"], "all")]
        counts = Counter(row["outcome"] for row in own)
        share = 100.0 * counts["proved"] / len(own) if own else 0.0
        lines.append(
            f"{source:12} {len(own):4} findings, {counts['proved']} edited and proved ({share:.0f} %), "
            f"{counts['refused']} refused, {counts['wrong']} wrong"
        )
    steps = [(float(row["promised_us"]), float(row["linted_us"])) for row in rows if row.get("linted_us")]
    kept = sum(abs(promised - linted) <= PROMISE_PERCENT / 100.0 * linted for promised, linted in steps)
    lines.append(f"{len(steps)} written models, {kept} with the promised step to within {PROMISE_PERCENT} %")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("list", "fix", "summary"))
    parser.add_argument("--checkouts", type=Path, help="folder of checked out repositories")
    parser.add_argument("--only", action="append", help="models of that name or source; others' rows stay")
    parser.add_argument("--resume", action="store_true", help="leave models that have results out")
    options = parser.parse_args(arguments)
    file, fields = (FINDINGS, FIELDS) if options.command == "list" else (RESULTS, RESULT_FIELDS)
    if options.command == "summary":
        print(summary(read(RESULTS)))
        return 0
    absent = missing(options.checkouts)
    if absent:
        print(f"not checked out, left out: {', '.join(absent)}")
    only = set(options.only or ())
    with tempfile.TemporaryDirectory() as scratch:
        found = (
            model
            for model in models(Path(scratch), options.checkouts)
            if not only or {model.name, model.source} & only
        )
        rows = [
            row for row in read(file) if options.resume or (only and not {row["model"], row["source"]} & only)
        ]
        if options.command == "list":
            for row in listed(found):
                rows.append(row)
                write(file, rows, fields)
        else:
            done = {row["model"] for row in rows}
            wanted = read(FINDINGS)
            for row in fixed((model for model in found if model.name not in done), wanted):
                rows = ordered([*rows, row], wanted)
                write(file, rows, fields)
    if options.command == "fix":
        print(summary(rows))
        return int(any(row["outcome"] == "wrong" for row in rows))
    print(f"{len(rows)} findings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
