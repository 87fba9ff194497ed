"""A step as torch.compile runs it: pointwise chains in one kernel, misaligned products padded.

Deliberately simple, and no better than this says: Inductor's schedule is not reproduced.
- An elementwise op whose input was made by a pointwise op, a norm, a softmax or a reduction and is read by
  nothing else runs inside that op's kernel; so does a norm, softmax or reduction of a pointwise result. The
  tensor between them is neither written nor read, in either direction.
- A cast of an activation runs inside the pointwise kernel before or after it; equal casts of one tensor run
  once. Casts of weights stay kernels.
- Products with misaligned sizes are padded as torch/_inductor/fx_passes/pad_mm.py does: where math limits
  them and the padded one, copies included, is PADDED_GAIN times as fast. Inductor measures, the model prices.
- Convolutions run channels last where torch/_inductor/graph.py (decide_layout_opt) says so.
- Kernels that libraries provide (matmul, convolution, attention) keep their epilogues separate, which is
  Inductor's default without max-autotune.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tclint.config.settings import Mode
from tclint.graph.lowering.work import Gemm, Kernel, Traffic
from tclint.graph.ops import Cast, Graph, Op, TensorSpec, itemsize_bytes

RECOMPUTE = "recompute"
"""Role of what a checkpointed region runs again (tclint.graph.lowering.step)."""
PADDED_GAIN = 1.1
"""Times by which the padded product must be faster (is_padded_faster)."""
BALANCE_SHARE = 0.5
"""Of the machine balance: multiply-adds per element from which on padding is tried (is_mm_compute_bound)."""
OPS_PER_CONVOLUTION = 300
"""A graph with this many ops per convolution, or more, keeps its layout."""
SMALL_CHANNELS = 64
# Time in channels_last over time as it is, by kind of convolution, that Inductor goes by in inference.
LAYOUT_FACTORS = {"grouped": 1.358, "small": 0.783, "in_out": 0.725, "default": 0.823}

FUSABLE_KINDS = frozenset({"elementwise", "norm", "softmax", "reduction"})
PADDED_ALIGNMENT = {"float16": 8, "bfloat16": 8, "float32": 4}
"""torch/_inductor/fx_passes/pad_mm.py, get_alignment_size."""


def turns_channels_last(graph: Graph, mode: Mode) -> bool:
    """Whether Inductor runs a graph's convolutions channels last, whatever layout it was traced in."""
    convolutions = [op for op in graph.ops if op.kind == "conv" and len(op.inputs) > 1]
    if not convolutions or len(graph.ops) >= OPS_PER_CONVOLUTION * len(convolutions):
        return False
    kinds = [_layout_kind(op) for op in convolutions]
    if mode == "infer":
        flops = [max(op.outputs[0].numel * op.inputs[1].numel, 1) for op in convolutions]
        weighted = sum(LAYOUT_FACTORS[kind] * flop for kind, flop in zip(kinds, flops, strict=True))
        return weighted <= sum(flops)
    if "grouped" in kinds or any(_narrows(op) for op in convolutions):
        return False
    return not all(_is_small(op) for op in convolutions)


def _layout_kind(op: Op) -> str:
    if op.attributes.get("groups", 1) > 1 and op.inputs[1].shape[1] > 1:
        return "grouped"
    return "small" if _is_small(op) else "in_out" if _narrows(op) else "default"


def _is_small(op: Op) -> bool:
    return max(op.inputs[1].shape[:2]) <= SMALL_CHANNELS


def _narrows(op: Op) -> bool:
    """Half as many output as input channels, or fewer, in a kernel larger than 1."""
    shape = op.inputs[1].shape
    return len(shape) > 2 and shape[0] * 2 <= shape[1] and shape[2] > 1


def fuse_pointwise(graph: Graph, kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Kernels without the traffic of tensors that fusion keeps in registers."""
    readers = _readers(graph)
    kernels, read_less, written_less = _fuse_casts(graph, kernels, readers)
    launches_less: set[int] = set()
    for producer, consumer, tensor_bytes in _fused_edges(graph, readers):
        read_less[consumer] += tensor_bytes
        written_less[producer] += tensor_bytes
        launches_less.add(consumer)
    remaining: dict[tuple[int, str, str], int] = {}
    for index, saved in read_less.items():
        for phase in ("forward", RECOMPUTE):
            remaining[index, phase, "read"] = saved
        # Backward: the gradient of that tensor is written by its consumer and read by its producer.
        remaining[index, "backward", "written"] = saved
    for index, saved in written_less.items():
        for phase in ("forward", RECOMPUTE):
            remaining[index, phase, "written"] = saved
        remaining[index, "backward", "read"] = saved
    result = []
    for kernel in kernels:
        work = kernel.work
        if not isinstance(work, Traffic) or kernel.op_index < 0 or _is_cast(graph, kernel):
            result.append(kernel)
            continue
        read = _take(remaining, (kernel.op_index, _phase(kernel), "read"), work.bytes_read)
        written = _take(remaining, (kernel.op_index, _phase(kernel), "written"), work.bytes_written)
        joined = kernel.op_index in launches_less
        if not read and not written and not joined:
            result.append(kernel)
            continue
        changed = replace(
            work,
            bytes_read=work.bytes_read - read,
            bytes_written=work.bytes_written - written,
            launches=0 if joined else work.launches,
        )
        if changed.bytes_read or changed.bytes_written:
            result.append(replace(kernel, work=changed))
    return tuple(result)


def _take(remaining: dict[tuple[int, str, str], int], key: tuple[int, str, str], available: int) -> int:
    taken = min(remaining.get(key, 0), available)
    if taken:
        remaining[key] -= taken
    return taken


def _readers(graph: Graph) -> Counter[tuple[int, int]]:
    """How many ops read each tensor; being an output of the model counts as one."""
    readers: Counter[tuple[int, int]] = Counter()
    for op in graph.ops:
        for key in {(s.producer, s.output_index) for s in op.inputs if s.producer is not None}:
            readers[key] += 1
    for spec in graph.outputs:
        if spec.producer is not None:
            readers[spec.producer, spec.output_index] += 1
    return readers


@dataclass(slots=True)
class _FusedCast:
    """One autocast conversion of an activation that no kernel of its own does."""

    is_copy: bool
    """An equal cast of the same tensor came before: nothing is left to do forward."""
    in_consumer: bool


def _fuse_casts(
    graph: Graph, kernels: Sequence[Kernel], readers: Counter[tuple[int, int]]
) -> tuple[list[Kernel], Counter[int], Counter[int]]:
    """Kernels without those casts, and the bytes that ops read and write less because of it."""
    read_less: Counter[int] = Counter()
    written_less: Counter[int] = Counter()
    fused: dict[tuple[int, int], _FusedCast] = {}
    done: Counter[tuple[int, int, str]] = Counter()
    for op in graph.ops:
        for number, cast in enumerate(op.casts):
            source = None if cast.parameter is not None else _source(op, cast, number)
            if source is None:
                continue
            producer, key = graph.ops[source[0]], (*source, cast.to_dtype)
            before, after = (cast.numel * itemsize_bytes(name) for name in (cast.from_dtype, cast.to_dtype))
            if op.kind in FUSABLE_KINDS:
                fused[op.index, number] = _FusedCast(is_copy=True, in_consumer=True)
                read_less[op.index] += max(after - before, 0)
            elif producer.kind in FUSABLE_KINDS:
                fused[op.index, number] = _FusedCast(is_copy=done[key] > 0, in_consumer=False)
                done[key] += 1
                if done[key] == readers[source]:
                    written_less[producer.index] += before
    left = []
    begun: Counter[tuple[int, str]] = Counter()
    for kernel in kernels:
        if not _is_cast(graph, kernel) or not isinstance(kernel.work, Traffic):
            left.append(kernel)
            continue
        phase = _phase(kernel)
        place = (kernel.op_index, phase)
        number = _number(graph.ops[kernel.op_index], kernel.work, begun[place], phase)
        begun[place] = number + 1
        found = fused.get((kernel.op_index, number))
        if found is None:
            left.append(kernel)
        elif not found.is_copy and phase != "backward":
            # The kernel before writes it.
            left.append(replace(kernel, work=replace(kernel.work, bytes_read=0, launches=0)))
        elif not found.in_consumer and phase == "backward":
            # The kernel of the producer's backward reads it.
            left.append(replace(kernel, work=replace(kernel.work, bytes_written=0, launches=0)))
    return left, read_less, written_less


def _source(op: Op, cast: Cast, number: int) -> tuple[int, int] | None:
    """(op, output) that made the tensor of an op's n-th cast; None for inputs of the model and constants."""
    equal = sum(1 for c in op.casts[:number] if c.parameter is None and c == cast)
    for spec in op.inputs:
        if spec.parameter is None and spec.shape == cast.shape and spec.dtype == cast.to_dtype:
            if equal == 0:
                return None if spec.producer is None else (spec.producer, spec.output_index)
            equal -= 1
    return None


def _phase(kernel: Kernel) -> str:
    """The phase of a kernel; what a checkpointed region runs again is like its forward."""
    return RECOMPUTE if kernel.role == RECOMPUTE else kernel.phase


def _is_cast(graph: Graph, kernel: Kernel) -> bool:
    """Whether a kernel is one of autocast's conversions, or undoes one."""
    if kernel.role != RECOMPUTE:
        return kernel.role == "cast"
    work = kernel.work
    return (
        isinstance(work, Traffic) and work.operation == "_to_copy" and bool(graph.ops[kernel.op_index].casts)
    )


def _number(op: Op, work: Traffic, start: int, phase: str) -> int:
    """Which of an op's casts a kernel is, or undoes; those without gradient are undone by none."""
    moved = (work.bytes_read, work.bytes_written)
    for number in range(start, len(op.casts)):
        cast = op.casts[number]
        sizes = tuple(cast.numel * itemsize_bytes(name) for name in (cast.from_dtype, cast.to_dtype))
        if moved == (sizes[::-1] if phase == "backward" else sizes):
            return number
    return len(op.casts)


def _fused_edges(graph: Graph, readers: Counter[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(producer, consumer, bytes) of tensors that never leave the chip."""
    edges = []
    for op in graph.ops:
        if op.kind not in FUSABLE_KINDS:
            continue
        for spec in op.inputs:
            if spec.producer is None or readers[spec.producer, spec.output_index] != 1:
                continue
            producer = graph.ops[spec.producer]
            if _fuses(producer, op, spec):
                edges.append((producer.index, op.index, spec.numel * itemsize_bytes(spec.dtype)))
                break
    return edges


def _fuses(producer: Op, consumer: Op, spec: TensorSpec) -> bool:
    if producer.kind not in FUSABLE_KINDS:
        return False
    # Two reductions need two loops; a pointwise op joins either side of one if the sizes agree.
    pointwise = "elementwise" in (producer.kind, consumer.kind)
    same_size = bool(consumer.outputs) and consumer.outputs[0].numel == spec.numel
    return pointwise and (same_size or consumer.kind in ("reduction", "softmax"))


def padded_gemm(work: Gemm) -> tuple[Gemm, Traffic] | None:
    """The product with sizes padded to Inductor's alignment and the copies that takes; None if aligned."""
    alignment = PADDED_ALIGNMENT.get(work.dtype)
    if alignment is None:
        return None
    # A dim of 1 is squeezed away, not padded.
    m, n, k = (size if size == 1 else -(-size // alignment) * alignment for size in (work.m, work.n, work.k))
    if (m, n, k) == (work.m, work.n, work.k):
        return None
    size = itemsize_bytes(work.dtype) * work.batch * work.repeats
    read = written = 0
    # The result is a view of the padded one, which the next kernel reads as it lies.
    for before, after in ((work.m * work.k, m * k), (work.k * work.n, k * n)):
        if before != after:
            read += before * size
            written += after * size
    copies = Traffic("copy", "constant_pad_nd", read, written, dtype=work.dtype, launches=1)
    return replace(work, m=m, n=n, k=k), copies
