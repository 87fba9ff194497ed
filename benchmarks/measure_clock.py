"""Timing one operator on one device: median over many launches, tensors rotating through more than the L2.

Results rotate as the inputs do: a result that is written over the one before would stay in the L2 and cost
no DRAM traffic.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

WARM_UP_S = 0.05
FIRST_WARM_UP_S = 2.0
"""The warm-up of the first case, until the clocks have left their idle state."""
LEAST_CALLS = 3
REPETITIONS = 20
"""Timings whose median counts."""
SLICE_US = 400.0
"""One timing covers calls for about this long, so that the events' own time does not count."""
ROTATED_CACHES = 3.0
"""Buffers that are used in turn are together this many times the L2."""
MOST_SETS = 256
MOST_CALLS = 200
"""In one timing, unless there are more sets."""
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
        self.warm_up_s = FIRST_WARM_UP_S

    def time_us(self, call: Callable[[Any], Any], sets: Sequence[Any]) -> tuple[float, str]:
        """Median microseconds of one call, and how it was launched ('graph' or 'stream')."""
        torch = self.torch
        results: list[Any] = [None] * len(sets)

        def slice_(calls: int) -> None:
            for position in range(calls):
                turn = position % len(sets)
                # Given back first, so that large results exist once; small ones keep their places.
                results[turn] = None
                results[turn] = call(sets[turn])

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            start = time.perf_counter()
            calls = 0
            while calls < LEAST_CALLS or time.perf_counter() - start < self.warm_up_s:
                call(sets[calls % len(sets)])
                calls += 1
                torch.cuda.synchronize()
        torch.cuda.current_stream().wait_stream(side)
        self.warm_up_s = WARM_UP_S
        slice_(1)
        once_us = self._between(lambda: slice_(1))
        count = max(len(sets), min(MOST_CALLS, int(SLICE_US / max(once_us, 1.0)) + 1))
        count = -(-count // len(sets)) * len(sets)
        results[:] = [None] * len(sets)

        run, how = partial(slice_, count), "stream"
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                slice_(count)
            run, how = graph.replay, "graph"
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError:
            # Some operators synchronise and cannot be captured.
            torch.cuda.synchronize()
            results[:] = [None] * len(sets)
        run()
        return statistics.median(self._between(run) / count for _ in range(REPETITIONS)), how

    def recover(self) -> bool:
        """Give the memory of a failed case back; False where the GPU is lost to this process."""
        try:
            self.torch.cuda.synchronize()
            self.torch.cuda.empty_cache()
        except RuntimeError:
            return False
        return True

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

    def recover(self) -> bool:
        """Nothing to give back."""
        return True

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
