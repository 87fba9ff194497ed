"""Builds and records models: from 'model.py:build_model' to a Graph. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tclint.config.settings import Settings
from tclint.core.errors import TargetError, UsageError
from tclint.graph.ops import Graph
from tclint.tracing.worker.client import (
    check_inputs,
    in_order,
    library_models,
    progress,
    run_programs,
    shared_worker,
    trace_runs,
    trace_targets,
)
from tclint.tracing.worker.program.seen import ProgramCall, ProgramRun, ProgramStart
from tclint.tracing.worker.result_file import TraceResult

__all__ = [
    "ProgramCall", "ProgramRun", "ProgramStart", "TraceResult", "in_order", "library_models", "object_names",
    "run_programs", "shared_worker", "trace_callable", "trace_objects", "trace_runs", "trace_targets",
]  # fmt: skip


def trace_callable(
    given: Any, inputs: Any = None, kwargs: Mapping[str, Any] | None = None, settings: Settings | None = None
) -> Graph:
    """Trace a model, or what a callable builds; see `tclint.trace`.

    Raises:
        TargetError: the model could not be built or traced.
        UsageError: the settings name several sets of inputs.
    """
    from tclint.tracing.worker.objects import trace_given

    if settings is not None:
        settings = settings.in_phase()
        stated = settings.inputs or settings.input_sets or settings.arguments or settings.batch
        if inputs is None and not kwargs and (stated or settings.phase != "none"):
            [name] = object_names([given])
            results = list(trace_objects({name: given}, settings))
            if len(results) > 1:
                raise UsageError("A graph is of one set of inputs; trace each with its input=.")
            if results[0].graph is None:
                raise results[0].error or TargetError(f"{name} was not traced.")
            return results[0].graph
    return trace_given(given, inputs, kwargs, settings or Settings())


def trace_objects(
    given: Mapping[str, Any],
    settings: Settings,
    *,
    own: Mapping[str, Settings] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Iterator[TraceResult]:
    """Trace models, or what callables build, so that nothing of it is seen in this process.

    Args:
        given: by name (`object_names`): modules, which stay as they are, and callables that return one.
        settings: uses inputs, input_sets, arguments, batch, mode and timeout_s.
        own: the settings of some of them, by name.
        on_progress: called with one line when one starts.

    Yields:
        A TraceResult per object and set of inputs.

    Raises:
        UsageError: a spec in `settings.inputs` is malformed; nothing was traced.
    """
    check_inputs(settings)
    from tclint.tracing.worker.objects import trace_object

    for number, (name, one) in enumerate(given.items(), start=1):
        if on_progress:
            on_progress(f"tracing {name}{progress(number, len(given))}")
        yield from trace_object(name, one, (own or {}).get(name, settings))


def object_names(given: Sequence[Any]) -> dict[str, Any]:
    """Models and callables by the names of their entries: those of the class or the callable, numbered."""
    from tclint.tracing.worker.objects import name_of

    named: dict[str, Any] = {}
    for one in given:
        name = name_of(one)
        same = sum(other == name or other.startswith(f"{name} (") for other in named)
        named[f"{name} ({same + 1})" if same else name] = one
    return named
