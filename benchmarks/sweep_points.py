"""Sweeps GPT-2 over width, heads, vocabulary and batch, and checks some of its points against fresh traces.

    python benchmarks/sweep_points.py                 # 10,000 points on two GPUs
    python benchmarks/sweep_points.py --widths 512:1024:256 --check 3

Prints the wall and CPU time of the command, and fails where a checked point differs from `tclint check` of a
model that is traced with these arguments.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TARGET = str(Path(__file__).parent.parent / "fixtures" / "gpt2.py") + ":build_model"
INPUT = "int64[8,1024]"
COMMAND = [sys.executable, "-m", "tclint"]
COMPARED = ("step_time_us", "readiness_percent", "memory_bytes")


def main() -> int:
    """Run the sweep, then the checks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", default="512:2048:64")
    parser.add_argument("--heads", default="4,8,16,32")
    parser.add_argument("--vocabularies", default="49152:51456:256")
    parser.add_argument("--batches", default="4:40:4")
    parser.add_argument("--gpu", default="a100,h100")
    parser.add_argument("--check", type=int, default=10, help="points to compare with fresh traces")
    options = parser.parse_args()
    arguments = [f"n_embd={options.widths}", f"n_head={options.heads}", f"vocab_size={options.vocabularies}"]
    given = [f"--arg={argument}" for argument in arguments]
    given += ["--batch", options.batches, "--where", "n_embd % n_head == 0"]
    started = time.perf_counter()
    swept = _run(["sweep", TARGET, *given], options.gpu)
    wall_s = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    points: list[dict[str, Any]] = swept["points"]
    cpu_s = used.ru_utime + used.ru_stime
    print(f"{len(points)} points, {swept['traced']} traced: {wall_s:.0f} s, {cpu_s:.0f} CPU s")
    chosen = random.Random(0).sample(points, options.check)
    return int(sum(_differs(point, options.gpu) for point in chosen) > 0)


def _differs(point: dict[str, Any], gpus: str) -> bool:
    """Whether a fresh trace of a point costs something else, which is printed."""
    given = [f"--arg={name}={value}" for name, value in point["arguments"].items() if name != "batch"]
    batch = str(point["arguments"]["batch"])
    (entry,) = _run(["check", TARGET, *given, "--batch", batch, "--exit-zero"], gpus)["entries"]
    same = all(point[name] == entry[name] for name in ("parameters", "flops")) and all(
        price[name] == entry["metrics"][price["gpu"]][name] for price in point["prices"] for name in COMPARED
    )
    print("equal" if same else "DIFFERENT", point["arguments"])
    return not same


def _run(arguments: list[str], gpus: str) -> dict[str, Any]:
    command = [*COMMAND, *arguments, "--gpu", gpus, "--input", INPUT, "--isolated", "--format", "json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
