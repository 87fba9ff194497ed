"""What the lowering of every topic shares: the kernels of one op in the making, questions about strides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from tclint.graph.lowering.walks import walk
from tclint.graph.lowering.work import Gemm, Kernel, Traffic, TrafficClass, Walk, Work
from tclint.graph.ops import Op, TensorSpec, contiguous_strides, itemsize_bytes


class NoFormulaError(Exception):
    """An op whose work is unknown; the message becomes the reason of a Gap."""


class Lowering:
    """One op and the kernels it takes: forward, and backward where a gradient is needed.

    Args:
        op: the op to lower.
        needs: per input of the op, whether its gradient must be computed; all False for inference.
        training: False makes dropout and batch norm behave as in eval mode whatever was traced.
        trainable: names of the parameters that require a gradient, whether or not this step computes it.
    """

    __slots__ = ("backward", "forward", "needs", "op", "trainable", "training")

    def __init__(
        self, op: Op, needs: Sequence[bool], training: bool, trainable: Collection[str] = frozenset()
    ) -> None:
        self.op = op
        self.needs = needs
        self.training = training
        self.trainable = trainable
        self.forward: list[Kernel] = []
        self.backward: list[Kernel] = []

    @property
    def any_needed(self) -> bool:
        """Whether the op has a backward at all."""
        return True in self.needs

    def find(self, *names: str) -> int | None:
        """Position of the first input with one of those schema names; None where it was not given."""
        for name in names:
            try:
                return self.op.input_names.index(name)
            except ValueError:
                continue
        return None

    def position(self, *names: str) -> int:
        """As `find`, for an input that must be there.

        Raises:
            NoFormulaError: it is not.
        """
        position = self.find(*names)
        if position is None:
            raise NoFormulaError(f"{self.op.name} was recorded without its input {names[0]!r}")
        return position

    def needed(self, position: int | None) -> bool:
        """Whether that input's gradient must be computed; False where it was not given."""
        return position is not None and self.needs[position]

    def requires_grad(self, position: int) -> bool:
        """Whether torch sees a tensor that requires a gradient there: parameters do under no_grad too."""
        return self.needs[position] or self.op.inputs[position].parameter in self.trainable

    @property
    def output(self) -> TensorSpec:
        """The first output.

        Raises:
            NoFormulaError: the op has none.
        """
        if not self.op.outputs:
            raise NoFormulaError(f"{self.op.name} was recorded without an output")
        return self.op.outputs[0]

    def attribute(self, name: str, default: Any = None) -> Any:
        value = self.op.attributes.get(name, default)
        return default if value is None else value

    def run(self, work: Work, role: str = "forward") -> None:
        """Add a kernel to the forward phase."""
        self.forward.append(Kernel(self.op.index, "forward", role, work))

    def run_backward(self, work: Work, role: str = "backward") -> None:
        """Add a kernel to the backward phase."""
        self.backward.append(Kernel(self.op.index, "backward", role, work))

    def traffic(
        self,
        traffic_class: TrafficClass,
        read: int,
        written: int,
        *,
        operation: str | None = None,
        rows: int = 0,
        columns: int = 0,
        launches: int = 1,
        flops: int = 0,
        dtype: str | None = None,
        backward: bool = False,
        summed: int = 0,
        walked: Walk | None = None,
    ) -> None:
        """Add a memory-bound kernel, or nothing where no byte moves (empty tensors)."""
        if not read and not written:
            return
        main = self.main_tensor()
        work = Traffic(
            traffic_class,
            operation or (f"{self.op.name}_backward" if backward else self.op.name),
            read,
            written,
            flops=flops,
            rows=rows,
            columns=columns,
            dtype=dtype or main.dtype,
            channels_last=main.memory_format in ("channels_last", "channels_last_3d"),
            launches=launches,
            summed=summed,
            walk=walked,
        )
        if backward:
            self.run_backward(work)
        else:
            self.run(work)

    def walk(self, *operands: TensorSpec) -> Walk | None:
        """How an elementwise kernel walks from these tensors, by default all inputs, to the output."""
        return walk(self.output, operands or self.op.inputs)

    def main_tensor(self) -> TensorSpec:
        """The tensor whose dtype and layout name the kernel: the largest floating one."""
        best: TensorSpec | None = None
        for spec in (*self.op.outputs, *self.op.inputs):
            if best is None or (spec.is_floating, spec.numel) > (best.is_floating, best.numel):
                best = spec
        return best if best is not None else TensorSpec((), "float32", ())

    def bias_gradient(self, position: int | None, gradient: TensorSpec) -> None:
        """Backward of an added bias: the output's gradient summed over all other dims."""
        if position is not None and self.needed(position):
            self.traffic(
                "reduction",
                gradient.numel * itemsize_bytes(gradient.dtype),
                self.op.inputs[position].bytes,
                operation="sum",
                backward=True,
                summed=gradient.numel // max(self.op.inputs[position].numel, 1),
            )

    def copy(self, spec: TensorSpec, *, backward: bool = False) -> None:
        """A library's own `.contiguous()` of an operand it cannot read as it lies."""
        dense = spec.numel * itemsize_bytes(spec.dtype)
        result = replace(spec, strides=contiguous_strides(spec.shape))
        self.traffic(
            "copy",
            spec.bytes,
            dense,
            operation="contiguous",
            dtype=spec.dtype,
            backward=backward,
            walked=walk(result, [spec]),
        )


LoweringRule = Callable[[Lowering], None]
"""Adds an op's kernels to its Lowering, or raises NoFormulaError."""


def dense_bytes(spec: TensorSpec) -> int:
    """Bytes of the tensor once materialised: expanded dims count in full (a gradient, an output)."""
    return spec.numel * itemsize_bytes(spec.dtype)


def distinct_bytes(specs: Sequence[TensorSpec]) -> int:
    """Bytes of the tensors as memory holds them, a tensor given twice (`x * x`) counted once."""
    if len(specs) == 1:
        return specs[0].bytes
    total = 0
    seen: set[tuple[Any, ...]] = set()
    for spec in specs:
        key = spec.source
        if key is not None:
            if key in seen:
                continue
            seen.add(key)
        total += spec.bytes
    return total


def collapsible(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether dims can be viewed as one dim without a copy (torch's rule in should_fold and view)."""
    previous_size, previous_stride = 0, -1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if previous_stride >= 0 and stride != previous_stride * previous_size:
            return False
        previous_size, previous_stride = size, stride
    return True


def row_contiguous(rows: int, columns: int, row_stride: int, column_stride: int) -> bool | None:
    """Whether a matrix's last dim is the contiguous one; False: its rows dim; None: neither is.

    A dim of size 1 never counts as contiguous unless the other cannot be either: what matters to the
    kernel is the run of elements it can load at once.
    """
    if column_stride == 1 and columns > 1:
        return True
    if row_stride == 1 and rows > 1:
        return False
    return True if columns == 1 or rows == 1 else None


def gemm(
    m: int, n: int, k: int, dtype: str, batch: int = 1, *, layout: str = "kkn", repeats: int = 1
) -> Gemm:
    """A Gemm whose contiguous dims are spelt A, B, C: 'kkn' is a linear layer's forward."""
    return Gemm(m, n, k, dtype, batch, layout[0], layout[1], layout[2], repeats)  # type: ignore[arg-type]
