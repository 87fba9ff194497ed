"""CPU time of `tclint FILE...` as a process: from a cold start, with a warm cache, and against other tools.

    python benchmarks/source_startup.py path/to/repository --files 20 --torchfix path/to/torchfix

Takes files of a folder at random and runs the command on them, user and system time of the process and its
children added up. The yardstick is `python -c "import libcst"`, which every tool that parses with libcst
pays. All rows alternate, so that a busy machine disturbs their ratios little. Byte code is compiled
beforehand, as installing does it. torchfix, from an environment of its own, gets one process (`-j 1`) and
the same files.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.source.syntax.discovery import discover

COMMAND = [sys.executable, "-m", "tclint"]
ONE_RULE = "RUN004"


def cpu_seconds(command: Sequence[str], environment: dict[str, str] | None = None) -> float:
    """The CPU time of a process that has ended, with its children's."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compile_packages() -> None:
    for name in ("tclint", "tclint_rules", "libcst"):
        for folder in importlib.import_module(name).__path__:
            compileall.compile_dir(folder, quiet=1)


def rows(files: Sequence[str], cache: Path, torchfix: str) -> dict[str, Callable[[], float]]:
    """What is measured, by name, in the order of one round."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}

    def cold(*options: str) -> float:
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        return cpu_seconds([*COMMAND, "check", "--isolated", *options, *files], environment)

    found: dict[str, Callable[[], float]] = {
        "import libcst": lambda: cpu_seconds([sys.executable, "-c", "import libcst"]),
        "tclint --version": lambda: cpu_seconds([*COMMAND, "--version"]),
        f"{len(files)} files, one rule selected": lambda: cold("--select", ONE_RULE),
        f"{len(files)} files, cold": cold,
        f"{len(files)} files, warm cache": lambda: cpu_seconds(
            [*COMMAND, "check", "--isolated", *files], environment
        ),
    }
    if torchfix:
        found["torchfix"] = lambda: cpu_seconds([torchfix, "-j", "1", *files])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="with Python files; nothing in it is executed")
    parser.add_argument("--files", type=int, default=20, help="how many of them (default 20; 0: all)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torchfix", metavar="COMMAND", default="", help="the torchfix to compare with")
    options = parser.parse_args(arguments)
    try:
        files, _ = discover([options.folder], Settings())
    except TargetError as error:
        print(error, file=sys.stderr)
        return 2
    if 0 < options.files < len(files):
        files = random.Random(options.seed).sample(files, options.files)
    compile_packages()
    print(f"{len(files)} files, {sum(os.path.getsize(file) for file in files) / 1e6:.2f} MB")
    with tempfile.TemporaryDirectory() as folder:
        work = rows(files, Path(folder) / "cache", options.torchfix)
        seconds: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(options.rounds):
            for name, measure in work.items():
                seconds[name].append(measure())
    for name, found in seconds.items():
        ratios = [own / base for own, base in zip(found, seconds["import libcst"], strict=True)]
        print(
            f"{name:32} {statistics.median(found):8.3f} s CPU, {statistics.median(ratios):6.2f} times "
            f"importing libcst (rounds {min(ratios):.2f} to {max(ratios):.2f})"
        )
    if options.torchfix:
        cold = next(found for name, found in seconds.items() if name.endswith("cold"))
        ratios = [other / own for other, own in zip(seconds["torchfix"], cold, strict=True)]
        print(f"torchfix / tclint, cold: {statistics.median(ratios):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
