"""Which operators torch.compile runs in one kernel, and what then no longer goes through memory.

Inductor makes loops of pointwise operators, norms, softmax, reductions and copies; products, convolutions,
attention and pooling are calls of libraries. Loops that such a call separates do not meet. A loop takes in
- pointwise operators in a row, whatever else reads their results: those are computed again, or written once;
- what feeds a norm, softmax or reduction, and what is computed from its result, row by row;
- another norm, softmax or reduction over the same rows.
Views cost nothing, copies are pointwise, casts happen on the way in or out, and a bias that a library call
does not add itself is added where its result is read. What a loop reads it reads once, and it writes what
something outside of it reads. Kernels of libraries keep their epilogues separate, which is Inductor's default
without max-autotune. Casts of weights stay kernels.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tclint.config.settings import Mode
from tclint.graph.lowering.work import Kernel, Traffic
from tclint.graph.ops import Cast, Graph, Op, TensorSpec, itemsize_bytes

RECOMPUTE = "recompute"
"""Role of what a checkpointed region runs again (tclint.graph.lowering.step)."""

POINTWISE_KINDS = frozenset({"elementwise", "copy", "embedding"})
ROW_KINDS = frozenset({"norm", "softmax", "reduction"})
BATCH_NORMS = frozenset({"batch_norm", "cudnn_batch_norm", "native_batch_norm", "sync_batch_norm"})

Tensor = tuple[int, int]
"""(op, output) that made it; views of it are the same."""


def fuse(graph: Graph, kernels: Sequence[Kernel], mode: Mode) -> tuple[Kernel, ...]:
    """Kernels without the traffic of tensors that stay on the chip."""
    loops = Loops(graph, kernels, mode)
    left = _Left(loops.saved)
    casts = _Casts(graph, loops)
    result = []
    for given in kernels:
        if given.op_index < 0 or not isinstance(given.work, Traffic):
            result.append(given)
            continue
        # Inductor's loops have the tensors' strides written into them.
        work = replace(given.work, walk=None)
        kernel = replace(given, work=work)
        op = graph.ops[kernel.op_index]
        if is_cast(graph, kernel):
            result += casts.left(kernel, work)
        elif op.index in loops.of:
            result += left.of(kernel, work, joins=op.index in loops.joins)
        elif not loops.serves(op, kernel, work):
            result.append(kernel)
    return tuple(result)


class Loops:
    """The loops of a graph.

    Args:
        graph: as it is priced: casts inserted.
        kernels: its kernels, which say over how many columns a norm works.
        mode: a batch norm is pointwise in inference.
    """

    def __init__(self, graph: Graph, kernels: Sequence[Kernel], mode: Mode) -> None:
        self._graph, self._mode = graph, mode
        self._columns = {
            kernel.op_index: (kernel.work.rows, kernel.work.columns)
            for kernel in kernels
            if isinstance(kernel.work, Traffic) and kernel.work.columns and kernel.phase == "forward"
        }
        self._bases = _bases(graph)
        self._readers: dict[Tensor, list[Op]] = defaultdict(list)
        for op in graph.ops:
            if op.kind != "view":
                for tensor in dict.fromkeys(self.tensor(spec) for spec in op.inputs):
                    if tensor is not None:
                        self._readers[tensor].append(op)
        self._returned = {tensor for spec in graph.outputs if (tensor := self.tensor(spec)) is not None}
        self.of = self._grouped()
        """The loop of every op that is in one: the index of its first op."""
        self.joins = {index for index, loop in self.of.items() if index != loop}
        """Ops that are launched with another."""
        self.saved = self._saved()

    def tensor(self, spec: TensorSpec) -> Tensor | None:
        """What a tensor is, or is a view of; None for inputs and constants."""
        if spec.producer is None:
            return None
        key = spec.producer, spec.output_index
        return self._bases.get(key, key)

    def readers(self, tensor: Tensor) -> Sequence[Op]:
        return self._readers.get(tensor, ())

    def is_pointwise(self, op: Op) -> bool:
        if op.name in BATCH_NORMS:
            return self._mode == "infer"
        return op.kind in POINTWISE_KINDS

    def is_loop(self, op: Op) -> bool:
        return self.is_pointwise(op) or op.kind in ROW_KINDS

    # --- grouping

    def _grouped(self) -> dict[int, int]:
        stages, loop, rows = (
            _Stages(self, self._graph.ops),
            dict[int, int](),
            dict[int, set[tuple[int, int]]](),
        )
        members: dict[int, list[int]] = {}
        for op in self._graph.ops:
            stages.enter(op)
            if not self.is_loop(op) or op.kind == "view":
                continue
            loop[op.index], members[op.index] = op.index, [op.index]
            own = self._columns.get(op.index)
            rows[op.index] = {own} if own is not None and not self.is_pointwise(op) else set()
            for tensor in dict.fromkeys(self.tensor(spec) for spec in op.inputs):
                if tensor is None or tensor[0] not in loop or not stages.meet(tensor[0], op.index):
                    continue
                one, other = loop[tensor[0]], loop[op.index]
                if one == other or len(rows[one] | rows[other]) > 1:
                    continue
                if self._fuses(self._graph.ops[tensor[0]], tensor, op):
                    first, second = min(one, other), max(one, other)
                    for index in members.pop(second):
                        loop[index] = first
                        members[first].append(index)
                    rows[first] |= rows.pop(second)
        return loop

    def _fuses(self, producer: Op, tensor: Tensor, consumer: Op) -> bool:
        if self.is_pointwise(producer):
            # A batch norm over the batch reads its input twice: it has to lie in memory.
            return self.is_pointwise(consumer) or consumer.name not in BATCH_NORMS
        if not consumer.outputs:
            return False
        made = producer.outputs[tensor[1]].numel
        read = max((spec.numel for spec in producer.inputs), default=0)
        if self.is_pointwise(consumer):
            return consumer.outputs[0].numel in (made, read)
        return producer.name not in BATCH_NORMS and self._columns.get(producer.index) == self._columns.get(
            consumer.index
        )

    # --- traffic

    def is_written(self, tensor: Tensor) -> bool:
        """Whether something outside of its loop reads a tensor as it is."""
        own = self.of.get(tensor[0])
        return tensor in self._returned or any(
            self.of.get(reader.index) != own and not self.reads_cast(reader, tensor)
            for reader in self.readers(tensor)
        )

    def reads_cast(self, reader: Op, tensor: Tensor) -> bool:
        """Whether a library's call reads a tensor in another dtype alone, that the tensor's loop writes."""
        return (
            self.is_in_loop(tensor)
            and reader.index not in self.of
            and bool(reader.casts)
            and all(
                any(cast.shape == spec.shape and cast.to_dtype == spec.dtype for cast in reader.casts)
                for spec in reader.inputs
                if self.tensor(spec) == tensor
            )
        )

    def is_in_loop(self, tensor: Tensor | None) -> bool:
        return tensor is not None and tensor[0] in self.of

    def _saved(self) -> Counter[tuple[int, str]]:
        """Bytes that an op does not move: (op, 'read' or 'written')."""
        saved: Counter[tuple[int, str]] = Counter()
        seen: dict[tuple[int, Tensor | str], int] = {}
        for op in self._graph.ops:
            loop = self.of.get(op.index)
            if loop is None:
                continue
            for spec in op.inputs:
                if spec.parameter is not None:
                    continue
                tensor = self.tensor(spec)
                if tensor is not None and self.of.get(tensor[0]) == loop:
                    saved[op.index, "read"] += spec.bytes
                    continue
                key = tensor if tensor is not None else spec.input_name
                if key is None:
                    continue
                stored = self._stored_bytes(spec, tensor)
                whole = self._whole_bytes(tensor) if tensor is not None else stored
                left = seen.setdefault((loop, key), whole)
                seen[loop, key] = max(left - stored, 0)
                saved[op.index, "read"] += max(spec.bytes - min(stored, left), 0)
            for position, spec in enumerate(op.outputs):
                if not self.is_written((op.index, position)):
                    saved[op.index, "written"] += spec.bytes
        return saved

    def _stored_bytes(self, spec: TensorSpec, tensor: Tensor | None) -> int:
        """The bytes of a tensor as it lies in memory, before a cast on the way in."""
        if tensor is None:
            return spec.bytes
        made = self._graph.ops[tensor[0]].outputs[tensor[1]]
        return spec.bytes * itemsize_bytes(made.dtype) // max(itemsize_bytes(spec.dtype), 1)

    def _whole_bytes(self, tensor: Tensor) -> int:
        return self._graph.ops[tensor[0]].outputs[tensor[1]].bytes

    def serves(self, op: Op, kernel: Kernel, work: Traffic) -> bool:
        """Whether a loop does what a library's call has a kernel of its own for: it copies an operand on the
        way out of the loop that makes it, or adds a bias where the result is read."""
        if _phase(kernel) == "backward":
            return False
        if work.traffic_class == "copy" and work.operation == "contiguous":
            sources = (self.tensor(spec) for spec in op.inputs if spec.parameter is None)
            return any(
                self.is_in_loop(tensor) and spec.bytes == work.bytes_read
                for tensor, spec in zip(sources, (s for s in op.inputs if s.parameter is None), strict=True)
            )
        if work.traffic_class == "elementwise" and work.operation == "add" and op.outputs:
            tensor = (op.index, 0)
            readers = self.readers(tensor)
            return bool(readers) and tensor not in self._returned and all(r.index in self.of for r in readers)
        return False


class _Stages:
    """How many calls of libraries lie before an op: loops of one stage can meet."""

    def __init__(self, loops: Loops, ops: Sequence[Op]) -> None:
        self._loops, self._ops = loops, ops
        self._stage: dict[int, int] = {}

    def enter(self, op: Op) -> None:
        stage = 0
        for spec in op.inputs:
            if spec.producer is not None:
                producer = self._ops[spec.producer]
                is_call = producer.kind != "view" and not self._loops.is_loop(producer)
                stage = max(stage, self._stage[spec.producer] + is_call)
        self._stage[op.index] = stage

    def meet(self, producer: int, consumer: int) -> bool:
        return self._stage[producer] == self._stage[consumer]


def _bases(graph: Graph) -> dict[Tensor, Tensor]:
    """What the views of a graph are views of."""
    bases: dict[Tensor, Tensor] = {}
    for op in graph.ops:
        if op.kind == "view" and op.inputs and op.inputs[0].producer is not None:
            source = op.inputs[0].producer, op.inputs[0].output_index
            for position in range(len(op.outputs)):
                bases[op.index, position] = bases.get(source, source)
    return bases


class _Left:
    """Kernels of ops in loops, with what is left of their traffic."""

    def __init__(self, saved: Counter[tuple[int, str]]) -> None:
        self._remaining: dict[tuple[int, str, str], int] = {}
        for (index, side), count in saved.items():
            for phase in ("forward", RECOMPUTE):
                self._remaining[index, phase, side] = count
            # Backward, the gradient of what is not read is not written, and the other way round.
            self._remaining[index, "backward", "written" if side == "read" else "read"] = count

    def of(self, kernel: Kernel, work: Traffic, *, joins: bool) -> Iterable[Kernel]:
        phase = _phase(kernel)
        read = self._take((kernel.op_index, phase, "read"), work.bytes_read)
        written = self._take((kernel.op_index, phase, "written"), work.bytes_written)
        changed = replace(
            work,
            bytes_read=work.bytes_read - read,
            bytes_written=work.bytes_written - written,
            launches=0 if joins else work.launches,
        )
        if changed.bytes_read or changed.bytes_written:
            yield replace(kernel, work=changed)

    def _take(self, key: tuple[int, str, str], available: int) -> int:
        taken = min(self._remaining.get(key, 0), available)
        if taken:
            self._remaining[key] -= taken
        return taken


@dataclass(slots=True)
class _FusedCast:
    """One autocast conversion of an activation that no kernel of its own does."""

    is_copy: bool
    """An equal cast of the same tensor came before: nothing is left to do forward."""
    in_consumer: bool


class _Casts:
    """Autocast's conversions of activations, done in the loop before or after them."""

    def __init__(self, graph: Graph, loops: Loops) -> None:
        self._graph = graph
        self._fused: dict[tuple[int, int], _FusedCast] = {}
        self._begun: Counter[tuple[int, str]] = Counter()
        done: set[tuple[object, ...]] = set()
        for op in graph.ops:
            for number, cast in enumerate(op.casts):
                if cast.parameter is not None:
                    continue
                spec = _cast_input(op, cast, number)
                tensor = None if spec is None else loops.tensor(spec)
                if op.index in loops.of:
                    self._fused[op.index, number] = _FusedCast(is_copy=True, in_consumer=True)
                elif spec is not None and loops.is_in_loop(tensor):
                    key = (tensor, spec.shape, spec.producer, cast.to_dtype)
                    self._fused[op.index, number] = _FusedCast(is_copy=key in done, in_consumer=False)
                    done.add(key)

    def left(self, kernel: Kernel, work: Traffic) -> Iterable[Kernel]:
        """What is left of the kernel of a cast."""
        phase = _phase(kernel)
        place = (kernel.op_index, phase)
        number = _number(self._graph.ops[kernel.op_index], work, self._begun[place], phase)
        self._begun[place] = number + 1
        found = self._fused.get((kernel.op_index, number))
        if found is None:
            yield kernel
        elif not found.is_copy and phase != "backward":
            # The loop before writes it.
            yield replace(kernel, work=replace(work, bytes_read=0, launches=0))
        elif not found.in_consumer and phase == "backward":
            # The loop of the producer's backward reads it.
            yield replace(kernel, work=replace(work, bytes_written=0, launches=0))


def _cast_input(op: Op, cast: Cast, number: int) -> TensorSpec | None:
    """The input that an op's n-th cast is of."""
    equal = sum(1 for c in op.casts[:number] if c.parameter is None and c == cast)
    for spec in op.inputs:
        if spec.parameter is None and spec.shape == cast.shape and spec.dtype == cast.to_dtype:
            if equal == 0:
                return spec
            equal -= 1
    return None


def _phase(kernel: Kernel) -> str:
    """The phase of a kernel; what a checkpointed region runs again is like its forward."""
    return RECOMPUTE if kernel.role == RECOMPUTE else kernel.phase


def is_cast(graph: Graph, kernel: Kernel) -> bool:
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
