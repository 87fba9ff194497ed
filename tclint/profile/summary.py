"""What one trace says: where the GPU's time went, and how much of it used Tensor Cores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tclint.profile.tensor_cores import ON_TENSOR_CORES, Judge, KernelUse, Verdict
from tclint.profile.trace import Kernel, Operator, Trace
from tclint.profile.works import DTYPES, dtype_of, sizes_text

KeyT = TypeVar("KeyT", bound=Hashable)

COMMUNICATION = "communication"
Direction = Literal["forward", "backward", "optimizer", ""]
"""'' of kernels without an operator."""
LAUNCH_BOUND_PERCENT = 20.0
"""Where the GPU waits for its next launch in more of the window, the host sets the pace."""
PAUSE_US = 1000.0
"""A longer wait for the host is no launch: data are loaded, or the host waited itself."""

_DTYPE_CASTS = frozenset({"aten::to", "aten::_to_copy", "aten::copy_"})


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the kernel time."""

    time_us: float
    count: int
    """Kernels."""


@dataclass(slots=True)
class OperatorTime:
    """All calls of one operator with the same sizes and dtypes, in the same direction."""

    name: str
    """'aten::mm'; of kernels without an operator, '(kernel name)'."""
    direction: Direction
    sizes: str
    """'M 4096, N 1024, K 3137' of matrix work, else the shapes of the arguments."""
    dtype: str
    use: KernelUse
    """What the kernels that took the most time use."""
    reason: str
    time_us: float = 0.0
    calls: int = 0
    kernels: list[str] = field(default_factory=list)
    """Names, the first-seen first."""
    modules: list[str] = field(default_factory=list)
    """Innermost modules that called it, as the profiler numbers them."""
    line: str = ""
    """Innermost function of the program around its first call."""


@dataclass(frozen=True, slots=True)
class Conversions:
    """Time of kernels that only change how values are stored, in microseconds."""

    dtype_us: float = 0.0
    layout_us: float = 0.0
    """Changes of the memory format by cuDNN, and copies that make a tensor contiguous."""
    copy_us: float = 0.0
    """Other copies and concatenations on the GPU."""


@dataclass(slots=True)
class Summary:
    """One rank's trace in figures; times in microseconds, of the whole trace."""

    path: str
    gpu: str
    """As CUDA names it; empty where the trace does not say."""
    rank: int | None
    steps: int
    """Steps of the profiler's schedule; 0 where the trace has none."""
    window_us: float
    """From the first to the last activity of the GPU."""
    busy_us: float
    """The part of the window with any activity on any stream."""
    launch_wait_us: float
    """The part of the window that is idle because the next activity had not been launched yet, without
    pauses."""
    pauses: dict[str, Share]
    """Such waits of more than PAUSE_US each, by what the host did; '' where the trace does not tell."""
    kernel_time_us: float
    """The time of kernels without communication, summed over streams."""
    communication_us: float
    exposed_communication_us: float
    """While nothing else ran."""
    memset_us: float
    transfer_us: float
    """Between host and device."""
    device_copy_us: float
    """cudaMemcpy within the device."""
    not_linked_us: float
    """Kernels, communication included, that no operator or region of the trace launched."""
    before_window_us: float
    """The part of it in kernels whose launch lies before the recorded window."""
    by_kind: dict[str, Share]
    by_use: dict[KernelUse, Share]
    reasons: dict[tuple[KernelUse, str], Share]
    conversions: Conversions
    operators: list[OperatorTime]
    """The longest first; communication left out."""
    unknown_names: dict[str, Share]
    """Kernels whose name, or whose use of Tensor Cores, is unknown."""
    backward_us: float
    optimizer_us: float
    has_shapes: bool
    has_modules: bool

    def window_percent(self, time_us: float) -> float:
        """As a share of the window."""
        return _percent(time_us, self.window_us)

    @property
    def idle_percent(self) -> float:
        return self.window_percent(self.window_us - self.busy_us)

    @property
    def launch_wait_percent(self) -> float:
        return self.window_percent(self.launch_wait_us)

    @property
    def pause_us(self) -> float:
        return sum(share.time_us for share in self.pauses.values())

    @property
    def is_launch_bound(self) -> bool:
        return self.launch_wait_percent > LAUNCH_BOUND_PERCENT

    @property
    def not_linked_percent(self) -> float:
        """The share of the time of all kernels."""
        return _percent(self.not_linked_us, self.kernel_time_us + self.communication_us)

    @property
    def tensor_core_percent(self) -> float:
        """The share of the kernel time."""
        on = sum(share.time_us for use, share in self.by_use.items() if use in ON_TENSOR_CORES)
        return _percent(on, self.kernel_time_us)

    def percent(self, time_us: float) -> float:
        """As a share of the kernel time."""
        return _percent(time_us, self.kernel_time_us)


def summarise(trace: Trace) -> Summary:
    """The figures of a trace."""
    judge = Judge(trace.device, trace.kernels)
    verdicts = [judge.verdict(kernel) for kernel in trace.kernels]
    judged = list(zip(trace.kernels, verdicts, strict=True))
    compute = [
        (kernel, verdict)
        for kernel, verdict in judged
        if kernel.activity == "kernel" and verdict.kind != COMMUNICATION
    ]
    exchanges = [kernel for kernel, verdict in judged if verdict.kind == COMMUNICATION]
    every_kernel = [kernel for kernel in trace.kernels if kernel.activity == "kernel"]
    others = [kernel for kernel, verdict in judged if verdict.kind != COMMUNICATION]
    busy_us, waits = occupation(trace.kernels)
    first_us = min(kernel.start_us for kernel in trace.kernels)
    copies = [kernel for kernel in trace.kernels if kernel.activity == "copy"]
    unlinked = [kernel for kernel in every_kernel if kernel.operator is None]
    return Summary(
        path=trace.path,
        gpu=trace.device.name,
        rank=trace.rank,
        steps=len(trace.steps),
        window_us=max(kernel.end_us for kernel in trace.kernels) - first_us,
        busy_us=busy_us,
        launch_wait_us=sum(end - begin for begin, end in waits if end - begin <= PAUSE_US),
        pauses=_pauses([wait for wait in waits if wait[1] - wait[0] > PAUSE_US], trace.operators),
        kernel_time_us=_sum(kernel for kernel, _ in compute),
        communication_us=_sum(exchanges),
        exposed_communication_us=busy_us - occupation(others)[0],
        memset_us=_sum(kernel for kernel in trace.kernels if kernel.activity == "memset"),
        transfer_us=_sum(copy for copy in copies if not _is_within_device(copy)),
        device_copy_us=_sum(copy for copy in copies if _is_within_device(copy)),
        not_linked_us=_sum(unlinked),
        before_window_us=_sum(_before_window(trace.kernels)),
        by_kind=_shares((verdict.kind, kernel.time_us) for kernel, verdict in compute),
        by_use=_shares((verdict.use, kernel.time_us) for kernel, verdict in compute),
        reasons=_shares(((v.use, v.reason), kernel.time_us) for kernel, v in compute if v.reason),
        conversions=_conversions(compute),
        operators=_operators(compute),
        unknown_names=_shares((k.name, k.time_us) for k, v in compute if v.use == "unknown"),
        backward_us=_sum(k for k, _ in compute if k.operator is not None and k.operator.is_backward),
        optimizer_us=_sum(k for k, _ in compute if k.operator is not None and k.operator.is_of_optimizer),
        has_shapes=trace.has_shapes,
        has_modules=trace.has_modules,
    )


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole > 0 else 0.0


def _sum(kernels: Iterable[Kernel]) -> float:
    return sum(kernel.time_us for kernel in kernels)


def _shares(items: Iterable[tuple[KeyT, float]]) -> dict[KeyT, Share]:
    """By key, the largest share first."""
    times: dict[KeyT, list[float]] = defaultdict(list)
    for key, time_us in items:
        times[key].append(time_us)
    shares = {key: Share(sum(own), len(own)) for key, own in times.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1].time_us))


def occupation(kernels: Sequence[Kernel]) -> tuple[float, list[tuple[float, float]]]:
    """How long any of them ran, and when none did because the next was not launched yet.

    Args:
        kernels: in the order in which they began.
    """
    busy_us = 0.0
    waits = []
    free_us: float | None = None
    for kernel in kernels:
        if free_us is None:
            free_us = kernel.start_us
        if kernel.start_us > free_us:
            if kernel.launch_us is not None and kernel.launch_us > free_us:
                waits.append((free_us, min(kernel.launch_us, kernel.start_us)))
            free_us = kernel.start_us
        busy_us += max(0.0, kernel.end_us - free_us)
        free_us = max(free_us, kernel.end_us)
    return busy_us, waits


def _pauses(waits: Sequence[tuple[float, float]], operators: Iterable[Operator]) -> dict[str, Share]:
    """Waits by the outermost call of the host that took most of each; both in order of their beginnings."""
    outermost = iter([operator for operator in operators if operator.parent is None])
    following = next(outermost, None)
    running: list[Operator] = []
    found: list[tuple[str, float]] = []
    for begin, end in waits:
        within: dict[str, float] = defaultdict(float)
        while following is not None and following.start_us < end:
            running.append(following)
            following = next(outermost, None)
        running = [operator for operator in running if operator.end_us > begin]
        for operator in running:
            within[operator.name] += min(end, operator.end_us) - max(begin, operator.start_us)
        name = max(within, key=lambda name: within[name], default="")
        found.append((name if within and within[name] > 0.5 * (end - begin) else "", end - begin))
    return _shares(found)


def _is_within_device(copy: Kernel) -> bool:
    return "DtoD" in copy.name or "Device -> Device" in copy.name


def _before_window(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Those without a launch that began before the first kernel with one on their stream.

    Args:
        kernels: in the order in which they began.
    """
    found = []
    launched: set[tuple[int, int]] = set()
    for kernel in kernels:
        stream = kernel.device, kernel.stream
        if kernel.launch_us is not None:
            launched.add(stream)
        elif stream not in launched and kernel.activity == "kernel" and kernel.operator is None:
            found.append(kernel)
    return found


def _conversions(compute: Iterable[tuple[Kernel, Verdict]]) -> Conversions:
    dtype_us = layout_us = copy_us = 0.0
    for kernel, verdict in compute:
        if verdict.kind == "layout":
            layout_us += kernel.time_us
        elif verdict.kind == "copy":
            if _changes_dtype(kernel.operator):
                dtype_us += kernel.time_us
            elif kernel.operator is not None and any(
                one.name in ("aten::contiguous", "aten::clone") for one in kernel.operator.chain()
            ):
                layout_us += kernel.time_us
            else:
                copy_us += kernel.time_us
    return Conversions(dtype_us, layout_us, copy_us)


def _changes_dtype(operator: Operator | None) -> bool:
    """A copy_ between tensors of two dtypes; where none were recorded, one inside a `to`."""
    if operator is None or operator.name not in _DTYPE_CASTS:
        return False
    kinds = [kind for kind, shape in zip(operator.dtypes, operator.dims, strict=False) if kind in DTYPES]
    if operator.name == "aten::copy_" and len(kinds) >= 2:
        return kinds[0] != kinds[1]
    return any(one.name in ("aten::to", "aten::_to_copy") for one in operator.chain())


def _operators(compute: Iterable[tuple[Kernel, Verdict]]) -> list[OperatorTime]:
    rows: dict[tuple[str, Direction, str, str], OperatorTime] = {}
    uses: dict[int, dict[tuple[KernelUse, str], float]] = defaultdict(lambda: defaultdict(float))
    calls: dict[int, set[int]] = defaultdict(set)
    for kernel, verdict in compute:
        operator = kernel.operator
        name = operator.name if operator is not None else f"({kernel.name})"
        sizes = sizes_text(operator) if operator is not None else ""
        key = (name, _direction(operator), sizes, dtype_of(operator) or "")
        row = rows.get(key)
        if row is None:
            row = rows[key] = OperatorTime(*key, use="none", reason="")
        row.time_us += kernel.time_us
        uses[id(row)][verdict.use, verdict.reason] += kernel.time_us
        calls[id(row)].add(id(operator or kernel))
        if kernel.name not in row.kernels:
            row.kernels.append(kernel.name)
        if operator is not None:
            row.line = row.line or operator.origin.line or operator.line
            module = operator.origin.module.rpartition("/")[2]
            if module and module not in row.modules:
                row.modules.append(module)
    for row in rows.values():
        row.calls = len(calls[id(row)])
        row.use, row.reason = max(uses[id(row)].items(), key=lambda item: item[1])[0]
    return sorted(rows.values(), key=lambda row: -row.time_us)


def _direction(operator: Operator | None) -> Direction:
    if operator is None:
        return ""
    if operator.is_of_optimizer:
        return "optimizer"
    return "backward" if operator.is_backward else "forward"
