"""CPU time of the source pass over a folder, against parsing the same files with libcst alone.

    python benchmarks/source_speed.py path/to/repository

The pass reads every file, filters them by their bytes, parses what is left, walks it and runs the source
rules. The baseline is `libcst.parse_module` on exactly the files that the filter lets through and, for the
filter's own worth, on all files (`--all`, slow). They alternate in one process and the medians of CPU time
are compared, so that a busy machine disturbs the ratios little.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import libcst

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.engine.rules.registry import load_rules
from tclint.engine.sources.lint import lint
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.discovery import discover
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES, applicable


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def parse_all(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            libcst.parse_module(text)
        except libcst.ParserSyntaxError:
            continue


def read(paths: Sequence[str]) -> dict[str, bytes]:
    found = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                found[path] = file.read()
        except OSError:
            continue
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", help="folders with Python files; nothing in them is executed")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of both measurements (default 5)")
    parser.add_argument("--all", action="store_true", help="also parse every file with libcst, once")
    options = parser.parse_args(arguments)

    settings = Settings(cache=False)  # parsing is what is compared
    rules = [rule for rule in load_rules(settings) if isinstance(rule, SourceRule)]
    heard = [rule for rule in rules if rule.applies(settings)]
    try:
        files, _ = discover(options.folders, settings)
    except TargetError as error:
        print(error, file=sys.stderr)
        return 2
    data = read(files)
    passing = {path: found for path, found in data.items() if applicable(heard, found)}
    total_bytes, group_bytes = (sum(map(len, group.values())) for group in (data, passing))
    print(f"files: {len(data)}, {total_bytes / 1e6:.1f} MB; rules: {', '.join(rule.code for rule in rules)}")
    if not passing:
        print("no file passes the filter; nothing to compare")
        return 0
    texts = [text.decode("utf-8", "replace") for text in passing.values() if len(text) <= MAX_SOURCE_BYTES]
    print(
        f"passing the filter: {len(passing)} files, {group_bytes / 1e6:.2f} MB "
        f"({100 * (1 - group_bytes / total_bytes):.1f} % of the bytes skipped)"
    )

    pass_s: list[float] = []
    parse_s: list[float] = []
    parse_all(texts)  # warm
    for _ in range(options.repeats):
        parse_s.append(cpu_seconds(lambda: parse_all(texts)))
        pass_s.append(cpu_seconds(lambda: lint(options.folders, rules, settings)))
    ratios = [own / base for own, base in zip(pass_s, parse_s, strict=True)]
    print(f"source pass over everything: {statistics.median(pass_s):.3f} s CPU")
    print(f"libcst.parse_module of the files passing the filter: {statistics.median(parse_s):.3f} s CPU")
    print(
        f"ratio pass / parse: {statistics.median(ratios):.2f} (rounds {min(ratios):.2f} to {max(ratios):.2f})"
    )
    if options.all:
        everything = [found.decode("utf-8", "replace") for found in data.values()]
        all_s = cpu_seconds(lambda: parse_all(everything))
        print(f"libcst.parse_module of all files: {all_s:.1f} s CPU")
        print(f"ratio pass / parsing everything: {statistics.median(pass_s) / all_s:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
