"""A step as torch.compile runs it: pointwise chains in one kernel, misaligned products padded.

Deliberately simple, and no better than this says: Inductor's schedule is not reproduced.
- An elementwise op, or a cast, whose input was made by a pointwise op, a norm, a softmax or a reduction and
  is read by nothing else runs inside that op's kernel; so does a norm, softmax or reduction of a pointwise
  result. The tensor between them is neither written nor read, in either direction.
- Products with misaligned sizes are padded as torch/_inductor/fx_passes/pad_mm.py does when the copies are
  cheaper than the misalignment: Inductor measures both, the model prices both.
- Kernels that libraries provide (matmul, convolution, attention) keep their epilogues separate, which is
  Inductor's default without max-autotune.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tclint.graph.graph import Graph
from tclint.graph.op import Op
from tclint.graph.spec import TensorSpec, itemsize_bytes
from tclint.graph.work import Gemm, Kernel, Traffic

FUSABLE_KINDS = frozenset({"elementwise", "norm", "softmax", "reduction"})
PADDED_ALIGNMENT = {"float16": 8, "bfloat16": 8, "float32": 4}
"""torch/_inductor/fx_passes/pad_mm.py, get_alignment_size."""


def fuse_pointwise(graph: Graph, kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Kernels without the traffic of tensors that fusion keeps in registers."""
    fused = _fused_edges(graph)
    read_less: Counter[int] = Counter()
    written_less: Counter[int] = Counter()
    launches_less: set[int] = set()
    for producer, consumer, tensor_bytes in fused:
        read_less[consumer] += tensor_bytes
        written_less[producer] += tensor_bytes
        launches_less.add(consumer)
    remaining: dict[tuple[int, str, str], int] = {}
    for index, saved in read_less.items():
        remaining[index, "forward", "read"] = saved
        # Backward: the gradient of that tensor is written by its consumer and read by its producer.
        remaining[index, "backward", "written"] = saved
    for index, saved in written_less.items():
        remaining[index, "forward", "written"] = saved
        remaining[index, "backward", "read"] = saved
    result = []
    for kernel in kernels:
        work = kernel.work
        if not isinstance(work, Traffic) or kernel.op_index < 0:
            result.append(kernel)
            continue
        read = _take(remaining, (kernel.op_index, kernel.phase, "read"), work.bytes_read)
        written = _take(remaining, (kernel.op_index, kernel.phase, "written"), work.bytes_written)
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


def _fused_edges(graph: Graph) -> list[tuple[int, int, int]]:
    """(producer, consumer, bytes) of tensors that never leave the chip."""
    readers: Counter[tuple[int, int]] = Counter()
    for op in graph.ops:
        for key in {(s.producer, s.output_index) for s in op.inputs if s.producer is not None}:
            readers[key] += 1
    for spec in graph.outputs:
        if spec.producer is not None:
            readers[spec.producer, spec.output_index] += 1
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
    m, n, k = (-(-size // alignment) * alignment for size in (work.m, work.n, work.k))
    if (m, n, k) == (work.m, work.n, work.k):
        return None
    size = itemsize_bytes(work.dtype) * work.batch * work.repeats
    read = written = 0
    for before, after in (
        (work.m * work.k, m * k),
        (work.k * work.n, k * n),
        # The result is a view of the padded one, copied when the next op wants it dense.
        (m * n, work.m * work.n),
    ):
        if before != after:
            read += before * size
            written += after * size
    copies = Traffic("copy", "constant_pad_nd", read, written, dtype=work.dtype, launches=1)
    return replace(work, m=m, n=n, k=k), copies
