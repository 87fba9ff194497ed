"""Which gradients a training step computes, derived from the forward ops; no autograd run.

A gradient is computed for an input that (a) depends on a trainable parameter through differentiable ops
and (b) influences an output of the model. Every floating output of the model is taken to feed the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tclint.graph.ops import Graph, Op, TensorSpec
from tclint.graph.ops.op_tables import DERIVATIVES, NOT_DIFFERENTIABLE, SUMS


def gradient_needs(graph: Graph) -> tuple[tuple[bool, ...], ...]:
    """Per op, per input: whether a training step computes a gradient for it.

    Integer and boolean inputs, model inputs, buffers and frozen parameters get none; neither does anything
    behind no_grad, detach or an op without derivative, nor what no output of the model depends on. A custom
    autograd.Function is taken to pass gradients to all floating inputs (straight-through estimators do).
    """
    return _Flow(graph).needs()


def trainable_names(graph: Graph) -> frozenset[str]:
    """Names and aliases of the parameters that require a gradient."""
    return frozenset(
        name
        for parameter in graph.parameters
        if parameter.trainable and not parameter.is_buffer
        for name in (parameter.name, *parameter.aliases)
    )


def recomputed(graph: Graph, needs: Sequence[Sequence[bool]]) -> dict[int, tuple[int, ...]]:
    """Ops that checkpointed regions run again in the backward pass, in order, by the region's last op.

    A region without any gradient is not run again. Reentrant ones run again whole, the others up to the
    last op that autograd keeps something of (`set_checkpoint_early_stop`): an op whose backward reads its
    output is run, one whose backward reads its inputs alone is not, nor is anything after it.
    """
    regions: dict[int, list[Op]] = {}
    for op in graph.ops:
        if op.checkpoint is not None:
            regions.setdefault(op.checkpoint.region, []).append(op)
    found = {}
    for ops in regions.values():
        if any(True in needs[op.index] for op in ops):
            whole = ops[0].checkpoint is not None and ops[0].checkpoint.is_reentrant
            count = len(ops) if whole else _needed_again(ops, needs)
            found[ops[-1].index] = tuple(op.index for op in ops[:count])
    return found


def _needed_again(ops: list[Op], needs: Sequence[Sequence[bool]]) -> int:
    """How many of a region's ops run until autograd has all that it keeps."""
    for position in range(len(ops) - 1, -1, -1):
        keeps = _keeps(ops[position]) if True in needs[ops[position].index] else "nothing"
        if keeps != "nothing":
            return position + (keeps == "output")
    return 0


def _keeps(op: Op) -> Literal["nothing", "inputs", "output"]:
    """What autograd keeps of an op last: its inputs before it runs, its output afterwards."""
    if op.kind in ("view", "copy"):
        return "nothing"
    if "dropout" in op.name:
        return "output" if op.attributes.get("p") and op.attributes.get("train", True) else "nothing"
    if op.kind == "elementwise":
        if len(op.inputs) > 1:
            return "nothing" if op.name in SUMS else "inputs"
        saved = DERIVATIVES[op.name].saved if op.name in DERIVATIVES else "input"
        return "output" if saved == "output" else "inputs" if saved == "input" else "nothing"
    return "inputs" if op.kind in ("linear", "matmul", "conv", "embedding") else "output"


class _Flow:
    """Two sweeps over the ops: forward, who depends on a parameter; backward, who reaches an output."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._trainable = trainable_names(graph)
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
        if op.name == _WRITE and op.inputs and op.inputs[0].parameter in self._trainable:
            # `weight.data *= mask`: the parameter stays a leaf that trains, whatever was written into it.
            self._requires[op.index] = True
            return (False,) * len(op.inputs)
        if not op.differentiable or (op.name in NOT_DIFFERENTIABLE and not op.has_own_backward):
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


# How the tracer says that a tensor contains what was written to its memory through another one.
_WRITE = "as_strided_scatter"


def _carries_gradient(spec: TensorSpec) -> bool:
    return spec.is_floating or spec.dtype.startswith("complex")
