"""Traces that are there already, for a run of `check` that shall not make them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tclint.config.settings import Settings
from tclint.engine.check import Progress
from tclint.tracing import TraceResult


@dataclass(frozen=True, slots=True)
class Traced:
    """What `check` takes as its cache: the traces of the one target that it is asked for."""

    results: Sequence[TraceResult]

    def trace(
        self,
        targets: Sequence[str],
        settings: Settings,
        own: Mapping[str, Settings] | None = None,
        on_progress: Progress | None = None,
    ) -> Iterator[TraceResult]:
        """As `tclint.tracing.trace_targets`."""
        del settings, own, on_progress
        assert {result.target for result in self.results} <= set(targets)
        yield from self.results
