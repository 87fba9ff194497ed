"""A profile: the traces of a run, one per rank, each with its figures and what stands out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tclint.core.errors import UsageError
from tclint.core.text import listed
from tclint.profile.observations import Observation, observations
from tclint.profile.reader import read_trace, trace_files
from tclint.profile.summary import Summary, summarise
from tclint.profile.trace import Trace


@dataclass(frozen=True, slots=True)
class RankProfile:
    """One trace."""

    trace: Trace
    summary: Summary
    observations: tuple[Observation, ...]


def read_profile(path: str, on_progress: Callable[[str], None] | None = None) -> list[RankProfile]:
    """Read a trace, or every trace of a folder, ordered by rank.

    Raises:
        UsageError: a file is no trace of an NVIDIA GPU; the message says what it is.
    """
    found = []
    for file in trace_files(path):
        if on_progress is not None:
            on_progress(f"reading {file}")
        trace = read_trace(file)
        summary = summarise(trace)
        found.append(RankProfile(trace, summary, tuple(observations(trace, summary))))
    return sorted(found, key=lambda one: (one.summary.rank is None, one.summary.rank or 0, one.summary.path))


def slowest_first(profiles: Sequence[RankProfile]) -> list[RankProfile]:
    """By kernel time: ranks that wait for each other differ in communication, not in their window."""
    return sorted(profiles, key=lambda one: -one.summary.kernel_time_us)


def check_same_gpu(profiles: Sequence[RankProfile]) -> None:
    """Raises UsageError where ranks ran on different GPUs: one prediction cannot stand beside them."""
    gpus = list(dict.fromkeys(one.summary.gpu for one in profiles))
    if len(gpus) > 1:
        raise UsageError(
            f"The traces are of different GPUs ({listed(gpus, 4)}); give the traces of one GPU, or one trace."
        )
