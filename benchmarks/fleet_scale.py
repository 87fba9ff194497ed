#!/usr/bin/env python
"""How `tclint fleet --scheduler` would grow with workers, simulated from what one target took here.

    python benchmarks/fleet_scale.py --target-s 0.3,0.5,1.2 --start-s 3.5 --client-ms 10 --targets 100000

What targets take is drawn from the measured seconds. Jobs have as many targets as tclint.fleet.bulk gives
them, and each starts with the import of torch. The next job goes to the first worker that is free, and the
one client that writes the results takes --client-ms for each target, one after the other. Nothing else is
modelled: no network, no slow disk, no lost worker.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Sequence

from tclint.fleet.bulk import LEAST_JOBS, MOST_AT_ONCE

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def hours(seconds: Sequence[float], workers: int, start_s: float, client_s: float) -> float:
    """Until the last result is written."""
    size = max(1, min(MOST_AT_ONCE, len(seconds) // (LEAST_JOBS * workers)))
    jobs = [seconds[at : at + size] for at in range(0, len(seconds), size)]
    free = [0.0] * workers
    ends = []
    for job in jobs:
        end = heapq.heappop(free) + start_s + sum(job)
        heapq.heappush(free, end)
        ends.append((end, len(job)))
    written = 0.0
    for end, count in sorted(ends):
        written = max(written, end) + count * client_s
    return written / 3600


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target-s", required=True, help="CPU seconds of targets, separated by commas")
    parser.add_argument("--start-s", type=float, required=True, help="CPU seconds to start one job")
    parser.add_argument("--client-ms", type=float, required=True, help="of the client, per target")
    parser.add_argument("--targets", type=int, default=100_000)
    arguments = parser.parse_args()
    known = [float(text) for text in arguments.target_s.split(",")]
    drawn = random.Random(0).choices(known, k=arguments.targets)
    alone = hours(drawn, 1, arguments.start_s, arguments.client_ms / 1e3)
    print(f"{len(known)} targets, {1e3 * sum(known) / len(known):.0f} ms each; simulated: {len(drawn):,}")
    print("| workers | hours | targets per hour | of that many workers' speed |\n|---|---|---|---|")
    for workers in WORKERS:
        took = hours(drawn, workers, arguments.start_s, arguments.client_ms / 1e3)
        share = 100 * alone / took / workers
        print(f"| {workers} | {took:.2f} | {len(drawn) / took:,.0f} | {share:.0f} % |")


if __name__ == "__main__":
    main()
