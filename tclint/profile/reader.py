"""From the events of a trace to kernels with their operators."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.profile.events import SUFFIXES, Event, EventFile
from tclint.profile.trace import Activity, Device, Kernel, Operator, Trace

# Categories have had several names since torch 1.8; spelled here in lower case.
_ACTIVITIES: dict[str, Activity] = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "memset",
    "memset": "memset",
}
_OPERATORS = frozenset({"cpu_op", "operator"})
_REGIONS = frozenset({"user_annotation"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "runtime", "privateuse1_runtime", "privateuse1_driver"})
_FRAMES = frozenset({"python_function"})

_STEP = re.compile(r"ProfilerStep#?\*?(\d+)")
_MODULE = "nn.Module: "
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_LIBRARY = re.compile(
    r"(^|/)(torch|torchvision|accelerate|lightning|pytorch_lightning)/|^<|/lib/python3|"
    r"^(threading|contextlib|functools|runpy|typing|enum|abc|_?collections_?abc|logging/\w+|inspect|copy|re)"
    r"\.py$"
)
_OTHERS = re.compile(r"AMD|Instinct|Radeon|gfx\d|Intel")


def trace_files(path: str) -> list[str]:
    """The files that a path names: itself, or of a folder every trace in it, one per rank.

    Raises:
        UsageError: there is no such path, or no trace in the folder.
    """
    if not os.path.isdir(path):
        return [path]
    found = sorted(str(file) for file in Path(path).iterdir() if file.name.endswith(SUFFIXES))
    if not found:
        raise UsageError(
            f"The folder {printable(path)!r} holds no trace: no .json or .json.gz file is in it."
        )
    return found


def read_trace(path: str) -> Trace:
    """Read one trace of torch.profiler.

    Raises:
        UsageError: it cannot be read, is no trace, or is none of an NVIDIA GPU.
    """
    file = EventFile(path)
    found = _Found()
    for event in file.events():
        found.add(event)
    name = printable(path)
    listed = file.header.get("deviceProperties")
    devices = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    others = [match[0] for entry in devices if (match := _OTHERS.search(str(entry.get("name", ""))))]
    if found.is_hip or others:
        vendor = "an Intel" if "Intel" in others else "an AMD"
        raise UsageError(f"The trace {name!r} is from {vendor} GPU; tclint knows only NVIDIA's kernels.")
    if not found.kernels:
        raise UsageError(
            f"The trace {name!r} holds no GPU kernel: it was recorded on a CPU, or without "
            "ProfilerActivity.CUDA. Profile a step that runs on an NVIDIA GPU."
        )
    _join(found)
    kernels = sorted((kernel for kernel, _ in found.kernels), key=lambda kernel: kernel.start_us)
    operators = [operator for thread in found.threads.values() for operator in thread.operators]
    operators.sort(key=lambda operator: operator.start_us)
    distributed = file.header.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    return Trace(
        path=path,
        device=_device(devices, kernels),
        kernels=kernels,
        operators=operators,
        steps=found.steps,
        rank=rank if isinstance(rank, int) else None,
        event_count=found.count,
        has_shapes=any(operator.dims for operator in operators),
        has_modules=any(operator.module for operator in operators),
    )


def _device(devices: Sequence[dict[str, Any]], kernels: Sequence[Kernel]) -> Device:
    """The GPU that ran the kernels: a host may have several kinds."""
    used = kernels[0].device
    entry = next((one for one in devices if one.get("id") == used), devices[0] if devices else {})
    major, minor = entry.get("computeMajor"), entry.get("computeMinor")
    known = isinstance(major, int) and isinstance(minor, int)
    return Device(str(entry.get("name", "")), (major, minor) if known else None)  # type: ignore[arg-type]


@dataclass
class _Thread:
    """What happened on one thread of the host; times in microseconds."""

    operators: list[Operator] = field(default_factory=list)
    launches: list[tuple[float, int]] = field(default_factory=list)
    """Begin and correlation id."""
    frames: list[tuple[float, float, str]] = field(default_factory=list)
    """Begin, end and name of Python functions and modules."""


class _Found:
    """The events of a trace by what they are, as they come."""

    def __init__(self) -> None:
        self.threads: dict[tuple[str, str], _Thread] = {}
        self.kernels: list[tuple[Kernel, int | None]] = []
        self.by_external_id: dict[int, Operator] = {}
        self.external_ids: dict[int, int] = {}
        """External ids of operators, by correlation id of kernels."""
        self.steps: dict[int, tuple[float, float]] = {}
        self.is_hip = False
        self.count = 0
        self._same: dict[Any, Any] = {}

    def add(self, event: Event) -> None:
        self.count += 1
        if event.get("ph") != "X":
            return
        category = str(event.get("cat", "")).lower()
        if category in _FRAMES:
            self._add_frame(event)
        elif category in _OPERATORS or category in _REGIONS:
            self._add_operator(event, category in _REGIONS)
        elif category in _LAUNCHES:
            name = str(event.get("name", ""))
            self.is_hip = self.is_hip or name.startswith("hip")
            correlation = _whole(_arguments(event).get("correlation"))
            if correlation is not None:
                self._thread(event).launches.append((_number(event.get("ts")), correlation))
        elif category in _ACTIVITIES:
            self._add_kernel(event, _ACTIVITIES[category])

    def _add_kernel(self, event: Event, activity: Activity) -> None:
        arguments = _arguments(event)
        kernel = Kernel(
            name=self._once(str(event.get("name", ""))),
            activity=activity,
            start_us=_number(event.get("ts")),
            time_us=max(0.0, _number(event.get("dur"))),
            device=_whole(arguments.get("device")) or 0,
            stream=_whole(arguments.get("stream")) or 0,
            size_bytes=_whole(arguments.get("bytes")) or 0,
        )
        correlation = _whole(arguments.get("correlation"))
        external = _whole(arguments.get("External id", arguments.get("external id")))
        # Some versions write the correlation id into both.
        if correlation is not None and external is not None and external != correlation:
            self.external_ids[correlation] = external
        self.kernels.append((kernel, correlation))

    def _add_operator(self, event: Event, is_region: bool) -> None:
        name = self._once(str(event.get("name", "")))
        start_us = _number(event.get("ts"))
        end_us = start_us + max(0.0, _number(event.get("dur")))
        step = _STEP.match(name)
        if step is not None:
            self.steps[int(step[1])] = (start_us, end_us)
            return
        arguments = _arguments(event)
        operator = Operator(
            name,
            start_us,
            end_us,
            dims=self._once(_shapes(arguments.get("Input Dims"))),
            dtypes=self._once(_texts(arguments.get("Input type"))),
            strides=self._once(_shapes(arguments.get("Input Strides"))),
            concrete=self._once(_texts(arguments.get("Concrete Inputs"))),
            sequence=_whole(arguments.get("Sequence number")),
            forward_thread=_whole(arguments.get("Fwd thread id")) or 0,
            is_region=is_region,
            module=self._once(str(arguments.get("Module Hierarchy", ""))),
        )
        stack = arguments.get("Call stack")
        if stack:
            operator.line = self._once(_own_frame(str(stack).split(";")))
        external = _whole(arguments.get("External id"))
        if external is not None:
            self.by_external_id.setdefault(external, operator)
        self._thread(event).operators.append(operator)

    def _add_frame(self, event: Event) -> None:
        name = str(event.get("name", ""))
        if name.startswith("<built-in"):
            return
        start_us = _number(event.get("ts"))
        frame = (start_us, start_us + max(0.0, _number(event.get("dur"))), self._once(name))
        self._thread(event).frames.append(frame)

    def _thread(self, event: Event) -> _Thread:
        return self.threads.setdefault((str(event.get("pid")), str(event.get("tid"))), _Thread())

    def _once(self, value: Any) -> Any:
        """One object for equal values: traces repeat themselves."""
        return self._same.setdefault(value, value)


def _join(found: _Found) -> None:
    """Operators into each other, launches into operators, kernels to launches, backward to forward."""
    launched: dict[int, tuple[float, Operator | None]] = {}
    for thread in found.threads.values():
        launched.update(_sweep(thread))
    steps = sorted(found.steps.items(), key=lambda step: step[1])
    for kernel, correlation in found.kernels:
        launch = launched.get(correlation) if correlation is not None else None
        if launch is not None:
            kernel.launch_us, kernel.operator = launch
        if kernel.operator is None and correlation is not None:
            kernel.operator = found.by_external_id.get(found.external_ids.get(correlation, -1))
        at_us = kernel.launch_us if kernel.launch_us is not None else kernel.start_us
        kernel.step = next((number for number, (begin, end) in steps if begin <= at_us <= end), None)
    for thread in found.threads.values():
        _mark_backward(thread)
    _tie_backward(operator for thread in found.threads.values() for operator in thread.operators)


def _mark_backward(thread: _Thread) -> None:
    """What autograd does on its own thread between nodes (gradients added up) is backward work as well."""
    nodes = [operator for operator in thread.operators if operator.sequence is not None]
    if any(node.forward_thread for node in nodes) and not any(_is_forward(node) for node in nodes):
        for operator in thread.operators:
            if operator.parent is None and not operator.forward_thread:
                operator.forward_thread = -1


def _is_forward(node: Operator) -> bool:
    return node.parent is None and not node.forward_thread


def _sweep(thread: _Thread) -> Iterator[tuple[int, tuple[float, Operator | None]]]:
    """Correlation id, begin and innermost operator of every launch of a thread; sets parents on the way."""
    thread.operators.sort(key=lambda operator: (operator.start_us, -operator.end_us))
    thread.launches.sort()
    thread.frames.sort(key=lambda frame: (frame[0], -frame[1]))
    frames = _Frames(thread.frames)
    around: list[Operator] = []
    launches = iter(thread.launches)
    launch = next(launches, None)
    for operator in thread.operators:
        while launch is not None and launch[0] < operator.start_us:
            yield launch[1], (launch[0], _innermost(around, launch[0]))
            launch = next(launches, None)
        while around and around[-1].end_us <= operator.start_us:
            around.pop()
        operator.parent = around[-1] if around else None
        if thread.frames:
            operator.module, operator.line = frames.at(operator.start_us)
        around.append(operator)
    while launch is not None:
        yield launch[1], (launch[0], _innermost(around, launch[0]))
        launch = next(launches, None)


def _innermost(around: Sequence[Operator], at_us: float) -> Operator | None:
    return next((operator for operator in reversed(around) if operator.end_us >= at_us), None)


class _Frames:
    """The Python functions that run at a time, asked for in growing order."""

    def __init__(self, frames: Sequence[tuple[float, float, str]]) -> None:
        self._frames = frames
        self._next = 0
        self._around: list[tuple[float, str]] = []

    def at(self, at_us: float) -> tuple[str, str]:
        """Path of modules and innermost function of the program."""
        while self._next < len(self._frames) and self._frames[self._next][0] <= at_us:
            begin, end, name = self._frames[self._next]
            self._next += 1
            while self._around and self._around[-1][0] <= begin:
                self._around.pop()
            self._around.append((end, name))
        while self._around and self._around[-1][0] < at_us:
            self._around.pop()
        names = [name for _, name in self._around]
        modules = [name.removeprefix(_MODULE) for name in names if name.startswith(_MODULE)]
        return "/".join(modules), _own_frame(reversed(names))


def _own_frame(names: Iterable[str]) -> str:
    """The first function that is neither torch's nor Python's own, innermost first."""
    for name in names:
        match = _FRAME.fullmatch(name)
        if match is not None and not _LIBRARY.search(match["file"]):
            return name
    return ""


def _tie_backward(operators: Iterable[Operator]) -> None:
    """A node of autograd has the sequence number that its forward operator was the last to begin with."""
    forward: dict[int, Operator] = {}
    backward = []
    for operator in operators:
        if operator.sequence is None:
            continue
        if operator.forward_thread:
            backward.append(operator)
        else:
            known = forward.get(operator.sequence)
            if known is None or known.start_us <= operator.start_us:
                forward[operator.sequence] = operator
    for operator in backward:
        operator.forward = forward.get(operator.sequence)  # type: ignore[arg-type]


def _arguments(event: Event) -> dict[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _shapes(value: Any) -> tuple[Any, ...]:
    """Lists of numbers, and lists of those, as tuples; () for everything else."""
    return tuple(_shape(entry) for entry in value) if isinstance(value, list) else ()


def _shape(entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, list):
        return ()
    if entry and all(isinstance(inner, list) for inner in entry):
        return tuple(_shape(inner) for inner in entry)
    return tuple(entry) if all(isinstance(size, int) for size in entry) else ()


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(entry) for entry in value) if isinstance(value, list) else ()


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None
