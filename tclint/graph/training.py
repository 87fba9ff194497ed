"""Which gradients a training step computes, derived from the forward ops; no autograd run.

A gradient is computed for an input that (a) depends on a trainable parameter through differentiable ops
and (b) influences an output of the model. Every floating output of the model is taken to feed the loss.
"""

from __future__ import annotations

from tclint.graph.graph import Graph
from tclint.graph.op import Op
from tclint.graph.op_tables import NOT_DIFFERENTIABLE
from tclint.graph.spec import TensorSpec


def composites(graph: Graph) -> frozenset[int]:
    """Indices of the ops whose work is carried by child ops (einsum, tensordot, ...)."""
    return frozenset(op.parent for op in graph.ops if op.parent is not None)


def gradient_needs(graph: Graph) -> tuple[tuple[bool, ...], ...]:
    """Per op, per input: whether a training step computes a gradient for it.

    Integer and boolean inputs, model inputs, buffers and frozen parameters get none; neither does anything
    behind no_grad, detach or an op without derivative, nor what no output of the model depends on.
    """
    return _Flow(graph).needs()


class _Flow:
    """Two sweeps over the ops: forward, who depends on a parameter; backward, who reaches an output."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._trainable = {
            name
            for parameter in graph.parameters
            if parameter.trainable and not parameter.is_buffer
            for name in (parameter.name, *parameter.aliases)
        }
        # Per op: an output depends on a trainable parameter. An in-place op on a view also marks the op
        # that made the viewed memory, so that later readers of the whole see it.
        self._requires = [False] * len(graph.ops)
        self._bases: dict[int, int] = {}

    def needs(self) -> tuple[tuple[bool, ...], ...]:
        ops = self._graph.ops
        wanted = [self._sweep_forward(op) for op in ops]
        reached = self._sweep_backward(wanted)
        nothing = {len(op.inputs): (False,) * len(op.inputs) for op in ops}
        return tuple(
            inputs if reached[op.index] else nothing[len(op.inputs)]
            for op, inputs in zip(ops, wanted, strict=True)
        )

    def _sweep_forward(self, op: Op) -> tuple[bool, ...]:
        if op.kind == "view" and op.inputs and op.inputs[0].producer is not None:
            source = op.inputs[0].producer
            self._bases[op.index] = self._bases.get(source, source)
        if not op.differentiable or op.name in NOT_DIFFERENTIABLE:
            return (False,) * len(op.inputs)
        inputs = tuple(self._depends(spec) for spec in op.inputs)
        if True in inputs and (not op.outputs or any(_carries_gradient(spec) for spec in op.outputs)):
            self._requires[op.index] = True
            base = self._base_of_write(op)
            if base is not None:
                self._requires[base] = True
            return inputs
        return (False,) * len(op.inputs)

    def _depends(self, spec: TensorSpec) -> bool:
        if not _carries_gradient(spec):
            return False
        if spec.producer is not None:
            return self._requires[spec.producer]
        return spec.parameter in self._trainable

    def _base_of_write(self, op: Op) -> int | None:
        """The op whose memory an in-place op writes through a view."""
        if not op.in_place or not op.inputs or op.inputs[0].producer is None:
            return None
        return self._bases.get(op.inputs[0].producer)

    def _sweep_backward(self, wanted: list[tuple[bool, ...]]) -> list[bool]:
        ops = self._graph.ops
        made = [spec.producer for spec in self._graph.outputs if spec.producer is not None]
        if not made:  # outputs unknown: every op counts
            return [True] * len(ops)
        reached = [False] * len(ops)
        for producer in made:
            reached[producer] = True
        for op in reversed(ops):
            index = op.index
            if op.parent is not None and reached[op.parent]:
                reached[index] = True
            base = self._base_of_write(op)
            if base is not None and reached[base]:
                reached[index] = True
            if not reached[index]:
                continue
            for spec, need in zip(op.inputs, wanted[index], strict=True):
                if need and spec.producer is not None:
                    reached[spec.producer] = True
                    # What is read through a view was perhaps written through another one.
                    if spec.producer in self._bases:
                        reached[self._bases[spec.producer]] = True
            # A composite recorded before or after its parts hands its reach on to them.
            if op.parent is not None:
                reached[op.parent] = True
        return reached


def _carries_gradient(spec: TensorSpec) -> bool:
    return spec.is_floating or spec.dtype.startswith("complex")


__all__ = ["composites", "gradient_needs"]
