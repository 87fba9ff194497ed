#!/usr/bin/env python
"""Whether two versions of tclint say the same: every finding, price and figure of about 400 targets.

    python benchmarks/compare_findings.py snapshot old.jsonl --tclint ../released/.venv/bin/tclint
    python benchmarks/compare_findings.py snapshot new.jsonl
    python benchmarks/compare_findings.py compare old.jsonl new.jsonl

A snapshot runs the command line, so that versions of any layout can be compared: on the fixtures, on scripts
of the tests, and on models of timm and transformers where the executable can import them (PYTHONPATH is
handed on). Every target is written as soon as it is done; the same command goes on where it stopped. Models
and scripts come from the checkout that this file lies in, so take both snapshots with the same file.

A comparison prints what differs and ends with 1 if more than one target in a hundred does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from compare_snapshots import compare, read_snapshot  # noqa: E402
from compare_targets import SETS, Target, write_targets  # noqa: E402

OPTIONS = ("--format", "json", "--no-cache", "--isolated", "--exit-zero", "--jobs", "1")
CIRCUMSTANCES = ("--gpu", "a100", "--gpu", "v100", "--mode", "train", "--min-gain", "0")
MODELS_A_COMMAND = 10
DEFAULT_TCLINT = str(Path(sys.executable).parent / "tclint")
MOST_SECONDS_A_COMMAND = 1800.0

Record = dict[str, Any]
_INSTALLED = re.compile(r'[^\s"]*/site-packages/')


class Runner:
    """Runs a tclint in the work folder and turns its report into one record for each target."""

    def __init__(self, tclint: str, work: Path) -> None:
        self.tclint = shutil.which(tclint) or tclint
        self.work = work
        self.environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        packages = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        folders = {str(HERE): "benchmarks/", **dict.fromkeys(packages, "packages/")}
        # A report writes paths from the working directory, or absolute ones.
        self.shown_as = {f"{work.resolve()}/": ""}
        for folder, name in folders.items():
            self.shown_as[f"{os.path.relpath(folder, work.resolve())}/"] = name
            self.shown_as[f"{os.path.realpath(folder)}/"] = name

    def records(self, batch: Sequence[Target]) -> list[Record]:
        """Those of a batch; one at a time where the command as a whole failed."""
        report, failure = self._report(batch)
        if report is None and len(batch) > 1:
            return [record for target in batch for record in self.records([target])]
        return [record_of(target, report or {}, failure) for target in batch]

    def _report(self, batch: Sequence[Target]) -> tuple[Record | None, str]:
        command = [self.tclint, "check", *OPTIONS, *CIRCUMSTANCES, *(target.argument for target in batch)]
        try:
            done = subprocess.run(
                command,
                cwd=self.work,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS_A_COMMAND,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"no answer in {MOST_SECONDS_A_COMMAND:.0f} s"
        try:
            report: Record = json.loads(self.comparable(done.stdout))
        except ValueError:
            return None, f"exit code {done.returncode}: {self.comparable(done.stderr)[-2000:]}"
        return report, ""

    def comparable(self, text: str) -> str:
        """Without what depends on where this machine keeps the files."""
        for shown, name in self.shown_as.items():
            text = text.replace(shown, name)
        return _INSTALLED.sub("packages/", text)


def record_of(target: Target, report: Record, failure: str = "") -> Record:
    """What a report says about one of its targets."""

    def is_own(finding: Record) -> bool:
        if target.is_model:
            return bool(finding["target"] == target.argument)
        return finding["target"] is None and finding["location"]["path"] == target.argument

    entries = [entry for entry in report.get("entries", ()) if entry["target"] == target.argument]
    errors = [error["message"] for error in report.get("errors", ()) if error["target"] == target.argument]
    if target.is_model and report and not entries and not errors:
        errors = ["the report does not mention it"]
    return {
        "target": target.name,
        "digest": target.digest,
        "tclint": report.get("tool", {}).get("hash", ""),
        "errors": [failure] if failure else errors,
        "entries": entries,
        "findings": [finding for finding in report.get("findings", ()) if is_own(finding)],
    }


def batches(targets: Iterable[Target]) -> list[list[Target]]:
    """Scripts are read together, because what one imports can explain another; models a few at a time."""
    targets = list(targets)
    found: list[list[Target]] = []
    for name in SETS:
        scripts = [target for target in targets if target.set == name and not target.is_model]
        models = [target for target in targets if target.set == name and target.is_model]
        found += [scripts] if scripts else []
        found += [
            models[start : start + MODELS_A_COMMAND] for start in range(0, len(models), MODELS_A_COMMAND)
        ]
    return found


def snapshot(out: Path, tclint: str, sets: tuple[str, ...], only: str, every: int, jobs: int) -> None:
    """Append the records that are not in the file yet."""
    done = read_snapshot(out) if out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        named = [target for target in write_targets(Path(folder), sets) if only in target.name]
        models = [target for target in named if target.is_model]
        chosen = [target for target in named if not target.is_model] + models[::every]
        todo = [target for target in chosen if target.name not in done]
        _note(f"{len(chosen)} targets, {len(todo)} to do -> {out}")
        runner = Runner(tclint, Path(folder))
        started, failed, position = time.monotonic(), 0, 0
        with ThreadPoolExecutor(jobs) as pool, out.open("a", encoding="utf-8") as stream:
            # The threads only wait for their commands.
            for future in as_completed([pool.submit(runner.records, batch) for batch in batches(todo)]):
                for record in future.result():
                    stream.write(json.dumps(record) + "\n")
                    position += 1
                    if record["errors"]:
                        failed += 1
                        _note(f"{record['target']}: {record['errors'][0]}")
                stream.flush()
                _note(f"{position} of {len(todo)}, {failed} failed, {time.monotonic() - started:.0f} s")


def _note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("snapshot", help="run a tclint on everything and keep what it says")
    taking.add_argument("out", type=Path, help="a file of one JSON record per target; gone on with")
    taking.add_argument("--tclint", default=DEFAULT_TCLINT, help=f"the executable ({DEFAULT_TCLINT})")
    taking.add_argument("--sets", default=",".join(SETS), help="of %(default)s")
    taking.add_argument("--every", type=int, default=1, metavar="N", help="every Nth model only")
    taking.add_argument("--jobs", type=int, default=1, help="commands at once (default 1)")
    comparing = commands.add_parser("compare", help="print what differs between two snapshots")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument(
        "--common",
        action="store_true",
        help="leave out targets that one of them lacks; otherwise these differ",
    )
    for command in (taking, comparing):
        command.add_argument("--only", default="", metavar="TEXT", help="targets whose name contains this")
    options = parser.parse_args(arguments)
    if options.command == "compare":
        missing = [path for path in (options.old, options.new) if not path.exists()]
        if missing:
            parser.error(f"{missing[0]} does not exist")
        old, new = read_snapshot(options.old), read_snapshot(options.new)
        lines, status = compare(old, new, options.only, common=options.common)
        print("\n".join(lines))
        return status
    sets = tuple(options.sets.split(","))
    if unknown := [name for name in sets if name not in SETS]:
        parser.error(f"no set is called {unknown[0]!r}; there are {', '.join(SETS)}")
    if shutil.which(options.tclint) is None:
        parser.error(f"{options.tclint} is no executable; say --tclint PATH")
    snapshot(options.out, options.tclint, sets, options.only, options.every, options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
