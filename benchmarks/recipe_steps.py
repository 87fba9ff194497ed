"""Prices the steps of well-known recipes and shows their memory beside what their authors publish.

    python benchmarks/recipe_steps.py --recipes FOLDER

FOLDER holds the files that benchmarks/recipes/published.csv names, which says where each is from.
transformers has to be installed.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.check import check

PUBLISHED = Path(__file__).parent / "recipes" / "published.csv"


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipes", required=True, metavar="FOLDER", type=Path)
    folder: Path = parser.parse_args().recipes
    print("| recipe | GPU | predicted memory, GiB | published, GiB | predicted step | published | findings |")
    print("|---|---|---|---|---|---|---|")
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for line in priced(folder, row):
                print(line, flush=True)


def priced(folder: Path, row: dict[str, str]) -> Iterator[str]:
    """The rows of one recipe's table."""
    targets = [str(folder / name) for name in row["files"].split()]
    missing = [name for name in targets if not Path(name).is_file()]
    if missing:
        yield f"| {row['recipe']} | | there is no {missing[0]} | | | | |"
        return
    settings = Settings(gpus=(row["gpu"],), gpu_count=int(row["gpus"]), cache=False)
    report = check(targets, replace(settings, explicit=frozenset({"gpu_count"})))
    for skipped in report.skipped:
        yield f"| {row['recipe']} | | {skipped.reason} | | | | |"
    found = ", ".join(dict.fromkeys(map(_place, report.findings)))
    for entry in report.entries:
        for metrics in entry.metrics.values():
            memory = metrics.memory
            gib = f"{memory.total_bytes / 2**30:.1f}"
            if memory.checkpointed_total_bytes is not None:
                gib += f" ({memory.checkpointed_total_bytes / 2**30:.1f} checkpointed)"
            step = f"{metrics.step_time_us / 1e6:.2f} s"
            if row["tokens_per_step"]:
                rate = int(row["tokens_per_step"]) / metrics.step_time_us * 1e6
                step += f", {rate:,.0f} tokens/s"
            gpus = f"{row['gpus']} {row['gpu']}"
            published = row["published_memory"], row["published_speed"]
            yield f"| {row['recipe']} | {gpus} | {gib} | {published[0]} | {step} | {published[1]} | {found} |"


def _place(finding: Finding) -> str:
    return f"{finding.code} (line {finding.location.line})"


if __name__ == "__main__":
    main()
