"""From ops to the kernels of a training or inference step, forward and backward; no torch needed.

Rules per topic: lower_gemm and lower_products (matrix products), lower_conv, lower_attention, lower_rnn,
lower_memory (elementwise, norms, pooling, losses), lower_copy. Each op is looked up by name, then by kind;
what has neither is a Gap, counted and named, never a silent zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tclint.graph.lowering import attention as lower_attention
from tclint.graph.lowering import convolution as lower_conv
from tclint.graph.lowering import copies as lower_copy
from tclint.graph.lowering import fourier as lower_fourier
from tclint.graph.lowering import matmul as lower_gemm
from tclint.graph.lowering import memory_bound as lower_memory
from tclint.graph.lowering import other_products as lower_products
from tclint.graph.lowering import recurrent as lower_rnn
from tclint.graph.lowering import state_space as lower_scan
from tclint.graph.lowering.gradients import gradient_needs, recomputed, trainable_names
from tclint.graph.lowering.kernels import Lowering, LoweringRule, NoFormulaError, dense_bytes
from tclint.graph.lowering.work import Gap, Kernel, Traffic
from tclint.graph.ops import Cast, Graph, Op, TensorSpec, itemsize_bytes
from tclint.graph.ops.op_tables import operators

_RULES: Mapping[str, LoweringRule] = {
    **lower_memory.RULES,
    **lower_copy.RULES,
    **lower_fourier.RULES,
    **lower_gemm.RULES,
    **lower_products.RULES,
    **lower_conv.RULES,
    **lower_attention.RULES,
    **lower_rnn.RULES,
    **lower_scan.RULES,
}
_RULES_BY_KIND: Mapping[str, LoweringRule] = {**lower_memory.BY_KIND, **lower_copy.BY_KIND}

# Ops that run on the host or only describe memory.
_FREE = operators("memory", "free")


def lower(graph: Graph, mode: str = "train") -> tuple[list[Kernel], list[Gap]]:
    """All kernels of a step except the optimizer's, and the ops that have no formula.

    Forward kernels come in the order of the ops, backward kernels after them in reverse order of the ops.
    What a checkpointed region runs again stands before the region's backward, with the role 'recompute'.

    Args:
        graph: a traced or transformed graph.
        mode: 'train' for forward and backward, 'infer' for forward alone.
    """
    training = mode == "train"
    needs = gradient_needs(graph) if training else tuple((False,) * len(op.inputs) for op in graph.ops)
    carried_by_children = graph.composites
    forward_of: list[list[Kernel]] = []
    backward_of: list[list[Kernel]] = []
    gaps: dict[tuple[str, str], list[int]] = {}
    uses = _GradientUses()
    trainable = trainable_names(graph)
    for op in graph.ops:
        if op.index in carried_by_children:
            forward_of.append([])
            backward_of.append([])
            continue
        op_needs = needs[op.index]
        low = Lowering(op, op_needs, training, trainable)
        reason = _reason_of_gap(low)
        if reason is not None:
            gaps.setdefault((op.name, reason), []).append(op.index)
        forward_of.append(low.forward)
        backward_of.append(low.backward)
        if True in op_needs:
            uses.count(op, op_needs)
    added = uses.additions()
    again = recomputed(graph, needs) if training else {}
    backward: list[Kernel] = []
    for index in range(len(graph.ops) - 1, -1, -1):
        for repeated in again.get(index, ()):
            backward += (replace(k, phase="backward", role="recompute") for k in forward_of[repeated])
        backward += added.get(index, ())
        backward += backward_of[index]
    forward = [kernel for kernels in forward_of for kernel in kernels]
    return forward + backward, [Gap(name, reason, tuple(found)) for (name, reason), found in gaps.items()]


def lower_op(op: Op, requires_grad: tuple[bool, ...], training: bool = True) -> list[Kernel]:
    """The kernels of one op: its forward, then its backward for the inputs that need a gradient.

    Args:
        op: the op; a composite is lowered as if it had no children.
        requires_grad: per input; an empty tuple means none.
        training: False makes dropout and batch norm behave as in eval mode.

    Raises:
        NoFormulaError: the op's work is unknown.
    """
    low = Lowering(op, requires_grad or (False,) * len(op.inputs), training)
    _apply(low)
    return low.forward + low.backward


def _reason_of_gap(low: Lowering) -> str | None:
    """Lower the op; why its work, or a part of it, is unknown, or None."""
    try:
        _apply(low)
    except NoFormulaError as error:
        return str(error)
    except (LookupError, ArithmeticError, TypeError, ValueError) as error:
        # A call that the formula was not written for must not cost the user the whole model.
        return f"{low.op.name} was called in a way that its formula does not know ({error!r})"
    return None


def forward_flops(graph: Graph) -> int:
    """FLOPs (2 per multiply-add) of all matrix products, convolutions and attention of one forward pass."""
    carried_by_children = graph.composites
    total = 0
    for op in graph.ops:
        if op.name not in _COUNTED or op.index in carried_by_children:
            continue
        low = Lowering(op, (False,) * len(op.inputs), training=False)
        _reason_of_gap(low)
        total += sum(kernel.flops for kernel in low.forward if not isinstance(kernel.work, Traffic))
    return total


_COUNTED = frozenset(
    {*lower_gemm.RULES, *lower_products.RULES, *lower_conv.RULES, *lower_attention.RULES, *lower_rnn.RULES}
)


def _apply(low: Lowering) -> None:
    op = low.op
    if op.casts:
        _casts(low)
    if op.name in _FREE:
        return
    # The tracer decides per call whether reshape and the like moved data.
    rule = lower_copy.view if op.kind == "view" else _RULES.get(op.name) or _RULES_BY_KIND.get(op.kind)
    if rule is None:
        raise NoFormulaError(f"no formula for the operator {op.name}")
    if not op.outputs and not op.inputs:
        return
    rule(low)


def _casts(low: Lowering) -> None:
    """Conversions before the op, and those of the gradients back; autocast does both per tensor."""
    converted: set[int] = set()
    for cast in low.op.casts:
        before = cast.numel * itemsize_bytes(cast.from_dtype)
        after = cast.numel * itemsize_bytes(cast.to_dtype)
        low.run(Traffic("copy", "_to_copy", before, after, dtype=cast.to_dtype), "cast")
        for position, spec in enumerate(low.op.inputs):
            if position not in converted and _is_result(cast, spec):
                converted.add(position)
                if low.needs[position]:
                    work = Traffic("copy", "_to_copy", after, before, dtype=cast.from_dtype)
                    low.run_backward(work, "cast")
                break


def _is_result(cast: Cast, spec: TensorSpec) -> bool:
    if cast.parameter is not None:
        return spec.parameter == cast.parameter
    return spec.shape == cast.shape and spec.dtype == cast.to_dtype and spec.parameter is None


class _GradientUses:
    """Tensors whose gradient arrives from several consumers: autograd adds the parts up, one add each."""

    def __init__(self) -> None:
        self._parts: dict[tuple[object, ...], int] = {}
        self._tensors: dict[tuple[object, ...], tuple[TensorSpec, int]] = {}

    def count(self, op: Op, needs: tuple[bool, ...]) -> None:
        for spec, need in zip(op.inputs, needs, strict=True):
            key = spec.source if need else None
            if key is None:
                continue
            self._parts[key] = self._parts.get(key, 0) + 1
            if key not in self._tensors:
                # The sum is complete when the tensor's first consumer has run its backward.
                self._tensors[key] = (spec, op.index if spec.producer is None else spec.producer)

    def additions(self) -> dict[int, list[Kernel]]:
        """Per op index: the additions that run before that op's backward."""
        added: dict[int, list[Kernel]] = {}
        for key, parts in self._parts.items():
            if parts < 2:
                continue
            spec, index = self._tensors[key]
            size = dense_bytes(spec)
            work = Traffic("elementwise", "add", 2 * size, size, dtype=spec.dtype)
            added.setdefault(index, []).extend([Kernel(index, "backward", "backward", work)] * (parts - 1))
        return added
