"""Builds and records models: from 'model.py:build_model' to a Graph. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tclint.config.settings import Settings
from tclint.graph.ops import Graph
from tclint.tracing.worker.client import TraceResult
from tclint.tracing.worker.client import trace_targets as _trace_targets

__all__ = ["TraceResult", "trace_callable", "trace_targets"]


def trace_callable(
    build: Callable[[], Any], inputs: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Graph:
    """Build and trace a model in this process; see `tclint.trace`.

    Raises:
        TargetError: the model could not be built or traced.
    """
    from tclint.tracing.worker.in_process import trace_in_process

    return trace_in_process(build, inputs, kwargs)


def trace_targets(
    targets: Sequence[str], settings: Settings, *, on_progress: Callable[[str], None] | None = None
) -> Iterator[TraceResult]:
    """Build and trace each target in a process of its own, several at a time.

    The worker process starts with this call, not with the first `next()`, so that torch is imported while
    the caller does other work. A target that hangs, exits, crashes or exhausts memory becomes an error;
    the others go on.

    Args:
        targets: 'path/file.py:callable', 'package.module:callable', 'timm:resnet50' or 'hf:gpt2'.
        settings: uses inputs, input_sets, arguments, batch, network, timeout_s, memory_limit_mib and jobs.
        on_progress: called with one line when a target starts.

    Yields:
        A TraceResult per target and set of inputs, in the order of the targets.

    Raises:
        UsageError: a spec in `settings.inputs` is malformed; nothing was started.
    """
    return _trace_targets(targets, settings, on_progress)
