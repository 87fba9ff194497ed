"""What one row of the zoo is: a model to build, and how a child process measures its trace."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zoo_child import run_in_child
from zoo_memory import memory_baseline_kib, status_kib

COLUMNS = (
    "name",
    "family",
    "status",
    "error",
    "ops",
    "gemm_ops",
    "gemm_ops_with_site_percent",
    "flops",
    "counter_flops",
    "counter_note",
    "assumptions",
    "adjustments",
    "build_s",
    "trace_s",
    "trace_cpu_s",
    "peak_rss_mib",
    "inputs",
    "inferred",
    "inferred_note",
    "date",
    "versions",
)


# Above this a model is not run for real to see whether it fails the same.
MAX_REAL_BYTES = 3 << 29


@dataclass(frozen=True)
class Case:
    """A model of the zoo."""

    name: str
    family: str
    build: Callable[[], tuple[Any, Any]]
    """Returns the model and its inputs: a tensor, a tuple of arguments, or a dict of keywords."""
    prepare: Callable[[], Any] = lambda: None
    """Runs before the memory baseline is taken: imports of the model's own module."""
    build_model: Callable[[], Any] | None = None
    """The model alone, for cases whose inputs may not fit it."""
    smaller: Case | None = None
    """The same architecture with less memory for weights, where it can be had."""


def measure_in_child(
    case: Case, timeout_s: float, with_inference: str, with_counter: bool = True
) -> dict[str, Any]:
    """Fork, trace the case there, and return its row; a child that dies or hangs becomes an error row.

    Where the case's own inputs are missing or do not fit, those that tclint finds are tried in another child.
    """
    row = _measure(case, timeout_s, with_inference, with_counter)
    if case.build_model is None or not row.get("error", "").startswith(("forward", "not run: NoInputs")):
        return row
    found: list[dict[str, Any]] = []
    build_model = case.build_model

    def prepare() -> None:
        case.prepare()
        found.append(find_inputs(build_model))

    with_found = replace(case, build=lambda: (build_model(), found[0]), prepare=prepare, build_model=None)
    second = _measure(with_found, timeout_s, with_inference, with_counter)
    if second["status"] != "ok":
        # Only now, because it takes long: whether it is the tracer that fails.
        return _measure(replace(case, build_model=None), timeout_s, with_inference, with_counter)
    second["adjustments"] = "; ".join(filter(None, [FOUND_INPUTS, second["adjustments"]]))
    return second


FOUND_INPUTS = "inputs found by trying"


def find_inputs(build_model: Callable[[], Any]) -> dict[str, Any]:
    """The first inputs, by name, on which the model's forward can be traced.

    Raises:
        Exception: of the first attempt, where there are none.
    """
    from tclint.tracing.inputs.guesses.inference import infer_inputs
    from tclint.tracing.inputs.repair.search import InputSearch
    from tclint.tracing.session.build import on_meta
    from tclint.tracing.session.trace import argument_names, trace_model
    from tclint.tracing.values.sites import SiteFinder

    model, _ = on_meta(build_model, SiteFinder())
    first = None
    search = InputSearch(model, infer_inputs(model))
    for tried in search:
        try:
            graph = trace_model(model, tried.args, tried.kwargs, SiteFinder())
        except Exception as error:
            first = first or error
            search.failed(error)
        else:
            if not search.doubts(graph):
                names = argument_names(model, len(tried.args))
                return {**dict(zip(names, tried.args, strict=True)), **tried.kwargs}
    raise first or LookupError("no inputs were found")


def _measure(case: Case, timeout_s: float, with_inference: str, with_counter: bool) -> dict[str, Any]:
    said, ending = run_in_child(lambda say: _report(say, case, with_inference, with_counter), timeout_s)
    row: dict[str, Any] = {"name": case.name, "family": case.family, **said}
    if ending and "status" not in row:
        row["status"] = ending
        row["error"] = f"no result after {timeout_s:.0f} s" if ending == "Timeout" else "the process died"
    elif ending:
        row.setdefault("counter_note", f"{ending} after the trace")
    return row


def _report(say: Callable[..., None], case: Case, with_inference: str, with_counter: bool) -> None:
    """In the child: measure, and say results as they come in."""
    built: list[Any] = []

    def build() -> Any:
        started = time.process_time()
        model, inputs = case.build()
        built[:] = [model, inputs, time.process_time() - started]
        return model, inputs

    try:
        case.prepare()
        baseline = memory_baseline_kib()
        from tclint.tracing import trace_callable

        started = time.process_time()
        graph = trace_callable(build)
        cpu_s = time.process_time() - started - built[2]
    except BaseException as error:
        if os.environ.get("ZOO_VERBOSE"):
            traceback.print_exc()
        if os.environ.get("ZOO_TRACEBACKS"):
            with open(os.environ["ZOO_TRACEBACKS"], "a", encoding="utf-8") as stream:
                stream.write(f"=== {case.name}\n{traceback.format_exc()}\n")
        cause = (error.__cause__ or error) if type(error).__name__ == "TargetError" else error
        stage = "forward" if built else "build"
        if cause.__class__.__name__ == "NoInputs":
            stage, status = "not run", "no inputs"
        elif (
            isinstance(cause, LookupError)
            and not built
            and cause.__traceback__ is not None
            and _in_benchmarks(cause)
        ):
            stage, status = "not run", "no model"
        else:
            say(status=type(cause).__name__, error=f"{stage}: {type(cause).__name__}: {_first_line(cause)}")
            waits = stage == "forward" and case.build_model is not None
            same = not waits and fails_the_same(case, cause, built)
            status = "own error" if same else type(cause).__name__
        say(status=status, error=f"{stage}: {type(cause).__name__}: {_first_line(cause)}")
        return
    peak_kib = status_kib("VmHWM") - baseline
    from tclint.graph.lowering.step import forward_flops
    from tclint.graph.ops.op import GEMM_KINDS

    gemms = [op for op in graph.ops if op.kind in GEMM_KINDS]
    with_site = sum(1 for op in gemms if op.construct_site or op.call_site)
    say(
        ops=len(graph.ops),
        gemm_ops=len(gemms),
        gemm_ops_with_site_percent=f"{100 * with_site / len(gemms):.1f}" if gemms else "",
        assumptions=len(graph.assumptions),
        adjustments="; ".join(graph.metadata["adjustments"]),
        build_s=f"{graph.metadata['build_s']:.3f}",
        trace_s=f"{graph.metadata['trace_s']:.4f}",
        trace_cpu_s=f"{cpu_s:.4f}",
        peak_rss_mib=f"{peak_kib / 1024:.1f}",
    )
    try:
        say(flops=forward_flops(graph))
    except Exception as error:
        say(counter_note=f"tclint's own count failed: {type(error).__name__}: {_first_line(error)}")
    say(status="ok")
    uncounted = _unknown_to_torch(graph) if with_counter else ""
    del graph
    model, inputs, _ = built
    if with_counter:
        from zoo_flops import count_on_meta

        counted, note = count_on_meta(model, inputs)
        say(counter_flops="" if counted is None else counted, counter_note=note or uncounted)
    count = _count_tensors(inputs)
    say(inputs=count)
    if with_inference == "all" or (with_inference == "one" and count == 1):
        say(**_trace_without_inputs(model))


# Products that torch.utils.flop_counter has no formula for.
_UNKNOWN_TO_TORCH = frozenset(
    {"addmv", "affine_grid_generator", "addr", "cdist", "dot", "mv", "pdist", "vdot"}
)


def _unknown_to_torch(graph: Any) -> str:
    from tclint.graph.lowering.step import forward_flops

    names = sorted({op.name for op in graph.ops} & _UNKNOWN_TO_TORCH)
    counts = [
        (name, forward_flops(replace(graph, ops=tuple(op for op in graph.ops if op.name == name))))
        for name in names
    ]
    return ", ".join(
        f"{name}: {count} FLOPs that torch's counter leaves out" for name, count in counts if count
    )


def _in_benchmarks(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and os.path.basename(frames[-1].filename).startswith("zoo_")


def fails_the_same(case: Case, error: BaseException, built: list[Any]) -> bool:
    """Whether plain torch raises the same for this model: then it is not the tracer's.

    A missing package, a default configuration that contradicts itself, inputs that do not fit.
    """
    import torch

    held: list[Any] = []

    def raised(device: str) -> BaseException | None:
        try:
            with torch.device(device), torch.no_grad():
                model, inputs = case.build()
                held[:] = [model]
                args, kwargs = as_call(inputs, lambda tensor: torch.zeros_like(tensor, device=device))
                model(*args, **kwargs)
        except BaseException as plain:
            return plain
        return None

    plain = raised("meta")
    model = built[0] if built else held[0] if held else None
    if type(plain) is type(error) and _without_numbers(plain) == _without_numbers(error):
        return True
    # Meta tensors fail earlier where the model looks at values; other kernels word the same error otherwise.
    small = model is not None and _weight_bytes(model) < MAX_REAL_BYTES
    return small and type(raised("cpu")) is type(error)


def _weight_bytes(model: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def _without_numbers(error: BaseException) -> str:
    return re.sub(r"\d+", "", _first_line(error))


def split_inputs(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments on meta, from what a case's build returned."""
    return as_call(inputs, lambda tensor: tensor.to("meta"))


def as_call(inputs: Any, convert: Callable[[Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments from what a case's build returned, every tensor converted."""
    import torch

    def converted(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return convert(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(converted, value))
        if type(value) in (list, tuple):
            return type(value)(converted(item) for item in value)
        if type(value) is dict:
            return {key: converted(item) for key, item in value.items()}
        return value

    if isinstance(inputs, dict):
        return (), converted(inputs)
    return converted(inputs if type(inputs) is tuple else (inputs,)), {}


def _trace_without_inputs(model: Any) -> dict[str, Any]:
    from tclint.tracing import trace_callable

    try:
        graph = trace_callable(lambda: model)
    except BaseException as error:
        return {"inferred": "no", "inferred_note": f"{type(error).__name__}: {_first_line(error)}"}
    said = [assumption.what for assumption in graph.assumptions if "input" in assumption.what]
    return {"inferred": "yes" if said else "unsaid", "inferred_note": said[0] if said else ""}


def _count_tensors(inputs: Any) -> int:
    if hasattr(inputs, "shape"):
        return 1
    if dataclasses.is_dataclass(inputs):
        inputs = vars(inputs)
    values = inputs.values() if isinstance(inputs, dict) else inputs
    return sum(map(_count_tensors, values)) if isinstance(inputs, (dict, list, tuple)) else 0


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""


def note(message: str) -> None:
    """Progress, on stderr."""
    print(message, file=sys.stderr, flush=True)
