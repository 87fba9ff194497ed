"""A profile: the traces of a run, one per rank, each with its figures and what stands out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
