"""Builds and records models: from 'model.py:build_model' to a Graph. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tclint.graph import Graph

__all__ = ["trace_callable"]


def trace_callable(
    build: Callable[[], Any], inputs: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Graph:
    """Build and trace a model in this process; see `tclint.trace`.

    Raises:
        TargetError: the model could not be built or traced.
    """
    from tclint.tracing.in_process import trace_in_process

    return trace_in_process(build, inputs, kwargs)
