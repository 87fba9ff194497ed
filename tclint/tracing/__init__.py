"""Builds and records models: from 'model.py:build_model' to a Graph. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tclint.config.settings import Settings
from tclint.core.errors import TargetError, UsageError
from tclint.graph.ops import Graph
from tclint.tracing.worker.client import TraceResult
from tclint.tracing.worker.client import trace_runs as _trace_runs
from tclint.tracing.worker.client import trace_targets as _trace_targets

__all__ = ["TraceResult", "object_names", "trace_callable", "trace_objects", "trace_runs", "trace_targets"]


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
    return trace_given(given, inputs, kwargs, evaluate=settings is not None and settings.mode == "infer")


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
    from tclint.tracing.worker.client import check_inputs, progress

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


def trace_targets(
    targets: Sequence[str],
    settings: Settings,
    *,
    own: Mapping[str, Settings] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Iterator[TraceResult]:
    """Build and trace each target in a process of its own, several at a time.

    The worker process starts with this call, not with the first `next()`, so that torch is imported while
    the caller does other work. A target that hangs, exits, crashes or exhausts memory becomes an error;
    the others go on.

    Args:
        targets: 'path/file.py:callable', 'package.module:callable', 'timm:resnet50' or 'hf:gpt2'.
        settings: uses inputs, input_sets, arguments, batch, mode, network, timeout_s,
            memory_limit_mib and jobs.
        own: by target, settings whose batch counts instead.
        on_progress: called with one line when a target starts.

    Yields:
        A TraceResult per target and set of inputs, in the order of the targets.

    Raises:
        UsageError: a spec in `settings.inputs` is malformed; nothing was started.
    """
    return _trace_targets(targets, settings, on_progress, own or {})


def trace_runs(
    runs: Sequence[tuple[str, Settings]], *, jobs: int = 0, on_progress: Callable[[str], None] | None = None
) -> Iterator[tuple[int, list[TraceResult]]]:
    """As `trace_targets`, with every target under its own settings; one may come several times.

    Args:
        runs: targets and their settings.
        jobs: how many are traced at once; 0: one per CPU core.
        on_progress: called with one line when a target starts.

    Yields:
        The position of a run, and a TraceResult per set of its inputs, as they come.

    Raises:
        UsageError: a spec of a run's inputs is malformed; nothing was started.
    """
    return _trace_runs(runs, jobs, on_progress)


def library_models(library: str) -> list[str]:
    """The names of all models of 'timm', or of all model types of 'hf', listed by a process of its own.

    Raises:
        UsageError: the library's package cannot be imported.
    """
    from tclint.tracing.worker.client import library_models

    return library_models(library)
