"""What one row of the zoo is: a model to build, and how a child process measures its trace."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import re
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
    "peak_rss_mib",
    "inferred",
    "inferred_note",
    "date",
    "versions",
)

_MADV_POPULATE_READ = 22


@dataclass(frozen=True)
class Case:
    """A model of the zoo."""

    name: str
    family: str
    build: Callable[[], tuple[Any, Any]]
    """Returns the model and its inputs: a tensor, a tuple of arguments, or a dict of keywords."""
    prepare: Callable[[], Any] = lambda: None
    """Runs before the memory baseline is taken: imports of the model's own module."""


@dataclass
class Measured:
    """One row; values as they are written to the CSV."""

    values: dict[str, Any] = field(default_factory=dict)

    def as_row(self) -> list[Any]:
        return [self.values.get(column, "") for column in COLUMNS]


def measure_in_child(case: Case, timeout_s: float, with_inference: bool) -> Measured:
    """Fork, trace the case there, and return its row; a child that dies or hangs becomes an error row."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            _report(writer, case, with_inference)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    data, timed_out = _read_all(reader, timeout_s)
    os.close(reader)
    if timed_out:
        os.kill(child, signal.SIGKILL)
    _, exit_status = os.waitpid(child, 0)
    values: dict[str, Any] = {"name": case.name, "family": case.family}
    lines = [line for line in data.decode(errors="replace").split("\n") if "\t" in line]
    for line in lines:
        key, _, text = line.partition("\t")
        values[key] = text
    if "status" not in values:
        values["status"] = "Timeout" if timed_out else "Died"
        values["error"] = (
            f"no result after {timeout_s:.0f} s" if timed_out else f"the process ended with {exit_status}"
        )
    elif timed_out:
        values.setdefault("counter_note", "timed out after the trace")
    return Measured(values)


def _read_all(reader: int, timeout_s: float) -> tuple[bytes, bool]:
    deadline = time.monotonic() + timeout_s
    data = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return data, True
        part = os.read(reader, 1 << 16)
        if not part:
            return data, False
        data += part


def _report(writer: int, case: Case, with_inference: bool) -> None:
    """In the child: measure, and write 'key<TAB>value' lines as results come in."""

    def say(**values: Any) -> None:
        for key, value in values.items():
            os.write(writer, f"{key}\t{_one_line(value)}\n".encode())

    # What models print is not part of the table.
    silent = os.open(os.devnull, os.O_WRONLY)
    if not os.environ.get("ZOO_VERBOSE"):
        os.dup2(silent, 1)
        os.dup2(silent, 2)
    built: list[Any] = []

    def build() -> Any:
        model, inputs = case.build()
        built[:] = [model, inputs]
        return model, inputs

    try:
        case.prepare()
        baseline = _memory_baseline()
        from tclint.tracing import trace_callable

        graph = trace_callable(build)
    except BaseException as error:
        if os.environ.get("ZOO_VERBOSE"):
            traceback.print_exc()
        if os.environ.get("ZOO_TRACEBACKS"):
            with open(os.environ["ZOO_TRACEBACKS"], "a", encoding="utf-8") as stream:
                stream.write(f"=== {case.name}\n{traceback.format_exc()}\n")
        cause = error.__cause__ or error.__context__ or error
        stage = "forward" if built else "build"
        if cause.__class__.__name__ == "NoInputs":
            stage, status = "not run", "no inputs"
        elif isinstance(cause, LookupError) and not built and cause.__traceback__ is not None and _in_benchmarks(cause):
            stage, status = "not run", "no model"
        else:
            say(status=type(cause).__name__, error=f"{stage}: {type(cause).__name__}: {_first_line(cause)}")
            same = _fails_the_same(case, cause)
            status = "own error" if same else type(cause).__name__
        say(status=status, error=f"{stage}: {type(cause).__name__}: {_first_line(cause)}")
        return
    peak_kib = _status_kib("VmHWM") - baseline
    from tclint.graph.lowering import forward_flops
    from tclint.graph.op import GEMM_KINDS

    gemms = [op for op in graph.ops if op.kind in GEMM_KINDS]
    with_site = sum(1 for op in gemms if op.construct_site or op.call_site)
    say(
        ops=len(graph.ops),
        gemm_ops=len(gemms),
        gemm_ops_with_site_percent=f"{100 * with_site / len(gemms):.1f}" if gemms else "",
        assumptions=len(graph.assumptions),
        adjustments="; ".join(graph.metadata["adjustments"]),
        build_s=f"{graph.metadata['build_s']:.3f}",
        trace_s=f"{graph.metadata['trace_s'] + graph.metadata['lower_s']:.4f}",
        peak_rss_mib=f"{peak_kib / 1024:.1f}",
    )
    try:
        say(flops=forward_flops(graph))
    except Exception as error:
        say(counter_note=f"tclint's own count failed: {type(error).__name__}: {_first_line(error)}")
    say(status="ok")
    del graph
    gc.collect()
    model, inputs = built
    from zoo_flops import count_on_meta

    counted, note = count_on_meta(model, inputs)
    say(counter_flops="" if counted is None else counted, counter_note=note)
    if with_inference and _is_one_tensor(inputs):
        say(**_trace_without_inputs(model))


def _in_benchmarks(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and os.path.basename(frames[-1].filename).startswith("zoo_")


def _fails_the_same(case: Case, error: BaseException) -> bool:
    """Whether plain torch on meta tensors raises the same for this model: then it is not the tracer's.

    A missing package, a default configuration that contradicts itself, inputs that do not fit.
    """
    import torch

    try:
        with torch.device("meta"), torch.no_grad():
            model, inputs = case.build()
            args, kwargs = split_inputs(inputs)
            model(*args, **kwargs)
    except BaseException as plain:
        return type(plain) is type(error) and _without_numbers(plain) == _without_numbers(error)
    return False


def _without_numbers(error: BaseException) -> str:
    return re.sub(r"\d+", "", _first_line(error))


def split_inputs(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments on meta, from what a case's build returned."""
    import torch

    def on_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to("meta")
        if type(value) in (list, tuple):
            return type(value)(on_meta(item) for item in value)
        if type(value) is dict:
            return {key: on_meta(item) for key, item in value.items()}
        return value

    if isinstance(inputs, dict):
        return (), on_meta(inputs)
    return on_meta(inputs if isinstance(inputs, tuple) else (inputs,)), {}


def _trace_without_inputs(model: Any) -> dict[str, Any]:
    from tclint.tracing import trace_callable

    try:
        graph = trace_callable(lambda: model)
    except BaseException as error:
        return {"inferred": "no", "inferred_note": f"{type(error).__name__}: {_first_line(error)}"}
    said = [assumption.what for assumption in graph.assumptions if "input" in assumption.what]
    return {"inferred": "yes" if said else "unsaid", "inferred_note": said[0] if said else ""}


def _is_one_tensor(inputs: Any) -> bool:
    values = list(inputs.values()) if isinstance(inputs, dict) else inputs
    if isinstance(values, (tuple, list)):
        return len(values) == 1 and hasattr(values[0], "shape")
    return hasattr(values, "shape")


def _memory_baseline() -> int:
    """Resident KiB now, after mapping in the files that the parent had mapped; resets the peak.

    A forked child starts without the page tables of shared libraries; touching them later would count as
    growth, though a fresh process that had imported them would not grow.
    """
    gc.collect()
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    with open("/proc/self/maps", encoding="utf-8") as stream:
        for line in stream:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) r\S+ \S+ \S+ [1-9]\d*\s+/", line)
            if found:
                start, end = (int(text, 16) for text in found.groups())
                libc.madvise(
                    ctypes.c_void_p(start), ctypes.c_size_t((end - start) // page * page), _MADV_POPULATE_READ
                )
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as stream:
        stream.write("5")
    return _status_kib("VmRSS")


def _status_kib(key: str) -> int:
    with open("/proc/self/status", encoding="utf-8") as stream:
        for line in stream:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    return 0


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""


def _one_line(value: Any) -> str:
    return str(value).replace("\n", " ").replace("\t", " ")


def note(message: str) -> None:
    """Progress, on stderr."""
    print(message, file=sys.stderr, flush=True)
