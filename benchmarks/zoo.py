#!/usr/bin/env python
"""Trace whole libraries of models, one CSV row per model; restartable.

    python benchmarks/zoo.py --library timm --limit 100
    python benchmarks/zoo.py --library custom
    python benchmarks/zoo.py --table            # writes docs/explanation/coverage.md from the CSV files

The library is imported once; every model is then built and traced in a forked child with a time limit.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import gc
import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before torch is imported: as tclint's own worker processes have it, and one core per run.
if __name__ == "__main__":  # tests import this module, and are no benchmark
    os.environ.setdefault("PYTORCH_JIT", "0")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from zoo_case import COLUMNS, Case, measure_in_child, note  # noqa: E402

LIBRARIES = ("timm", "transformers", "custom")


def main() -> int:
    arguments = _parse()
    if arguments.table:
        from zoo_table import write_table

        write_table(HERE / "zoo", HERE.parent / "docs" / "explanation" / "coverage.md")
        return 0
    if not arguments.library:
        note("say --library timm, transformers or custom, or --table")
        return 2
    source = importlib.import_module(
        f"zoo_{arguments.library}" + (".cases" if arguments.library == "custom" else "")
    )
    out = Path(arguments.out or HERE / "zoo" / f"{arguments.library}.csv")
    out.parent.mkdir(parents=True, exist_ok=True)
    done = _done(out)
    importlib.import_module("tclint.tracing.worker.objects")
    importlib.import_module("torch.utils.flop_counter")
    importlib.import_module("tclint.tracing.patches.modules").wrap_modules()  # as tclint's own worker does
    chosen = [
        case
        for position, case in enumerate(source.cases())
        if position % arguments.every == 0 and (not arguments.only or case.name in arguments.only)
    ]
    chosen = chosen[: arguments.limit] if arguments.limit else chosen
    todo = [case for case in chosen if case.name not in done]
    note(f"{arguments.library}: {len(chosen)} models chosen, {len(todo)} to do -> {out}")
    stamp = {"date": datetime.date.today().isoformat(), "versions": source.versions()}
    # The children must neither walk nor copy what the library's import left behind.
    gc.collect()
    gc.freeze()
    _run(todo, out, stamp, arguments)
    return 0


def _run(todo: list[Case], out: Path, stamp: dict[str, str], arguments: argparse.Namespace) -> None:
    started = time.monotonic()
    failed = 0
    is_new = not out.exists()
    with out.open("a", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        if is_new:
            rows.writerow(COLUMNS)
        for position, row in enumerate(_measured(todo, arguments), 1):
            row.update(stamp)
            rows.writerow([row.get(column, "") for column in COLUMNS])
            stream.flush()
            if row["status"] != "ok":
                failed += 1
                note(f"{row['name']}: {row['status']}: {row.get('error')}")
            if position % 50 == 0:
                note(f"{position} of {len(todo)}, {failed} failed, {time.monotonic() - started:.0f} s")
    note(f"{len(todo)} traced, {failed} failed, {time.monotonic() - started:.0f} s")


def _measured(todo: list[Case], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if arguments.jobs <= 1:
        for case in todo:
            yield measure_in_child(case, arguments.timeout, arguments.infer, arguments.count)
        return
    from concurrent.futures import ThreadPoolExecutor

    # The threads only wait for their forked children.
    with ThreadPoolExecutor(arguments.jobs) as pool:
        yield from pool.map(
            lambda case: measure_in_child(case, arguments.timeout, arguments.infer, arguments.count), todo
        )


def _done(out: Path) -> set[str]:
    if not out.exists():
        return set()
    with out.open(newline="", encoding="utf-8") as stream:
        return {row["name"] for row in csv.DictReader(stream)}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument(
        "--limit", type=int, default=0, metavar="N", help="the first N (timm: one per family first)"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth model")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="these models")
    parser.add_argument("--out", metavar="FILE.csv", help="default: benchmarks/zoo/LIBRARY.csv")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="models at a time")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="seconds per model")
    parser.add_argument(
        "--infer",
        choices=("one", "all"),
        default="",
        help="trace models of one tensor, or all, without inputs too",
    )
    parser.add_argument("--no-count", dest="count", action="store_false", help="skip torch's FLOP counter")
    parser.add_argument(
        "--table", action="store_true", help="write docs/explanation/coverage.md from the CSV files"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
