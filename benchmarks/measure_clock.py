"""Timing one operator on one device: median over many launches, inputs rotating through more than the L2."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

WARM_UP_S = 0.05
LEAST_CALLS = 3
REPETITIONS = 20
"""Timings whose median counts."""
SLICE_US = 400.0
"""One timing covers calls for about this long, so that the events' own time does not count."""
ROTATED_CACHES = 3.0
"""Buffers that are used in turn are together this many times the L2."""
MOST_SETS = 256
CPU_REPETITIONS = 3


def buffer_sets(bytes_per_set: int, cache_bytes: int) -> int:
    """How many sets of inputs to rotate through so that none is in the cache when its turn comes."""
    wanted = ROTATED_CACHES * cache_bytes / max(bytes_per_set, 1)
    return max(1, min(MOST_SETS, int(wanted) + 1))


class CudaClock:
    """Device events around calls that were captured in a CUDA graph, so that no launch gap counts."""

    name = "cuda"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.cache_bytes = int(getattr(properties, "L2_cache_size", 64 * 2**20))
        self.free_bytes = int(torch.cuda.mem_get_info()[0])

    def time_us(self, call: Callable[[Any], Any], sets: Sequence[Any]) -> tuple[float, str]:
        """Median microseconds of one call, and how it was launched ('graph' or 'stream')."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            start = time.perf_counter()
            calls = 0
            while calls < LEAST_CALLS or time.perf_counter() - start < WARM_UP_S:
                call(sets[calls % len(sets)])
                calls += 1
                torch.cuda.synchronize()
        torch.cuda.current_stream().wait_stream(side)
        once_us = self._between(lambda: call(sets[0]))
        count = max(len(sets), min(200, int(SLICE_US / max(once_us, 1.0)) + 1))
        count = -(-count // len(sets)) * len(sets)

        def slice_() -> None:
            for position in range(count):
                call(sets[position % len(sets)])

        run, how = slice_, "stream"
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                slice_()
            run, how = graph.replay, "graph"
        except RuntimeError:
            # Some operators synchronise and cannot be captured.
            torch.cuda.synchronize()
        run()
        return statistics.median(self._between(run) / count for _ in range(REPETITIONS)), how

    def _between(self, run: Callable[[], Any]) -> float:
        torch = self.torch
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e3


class CpuClock:
    """The host's clock: for testing this script where there is no GPU. Its figures calibrate nothing."""

    name = "cpu"
    cache_bytes = 2**16
    free_bytes = 2 * 2**30

    def time_us(self, call: Callable[[Any], Any], sets: Sequence[Any]) -> tuple[float, str]:
        """Median microseconds of one call."""
        call(sets[0])
        times = []
        for position in range(CPU_REPETITIONS):
            start = time.perf_counter()
            call(sets[position % len(sets)])
            times.append(1e6 * (time.perf_counter() - start))
        return statistics.median(times), "host"


Clock = CudaClock | CpuClock
