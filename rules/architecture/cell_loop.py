"""Recurrent cells called step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from tclint.plugin import Change, Finding, Graph, GraphContext, GraphRule, Op
from tclint.plugin.graph import (
    gain_phrase,
    indices_of,
    share_finding,
)

_FEWEST_STEPS = 4


class RnnCellLoop(GraphRule):
    """A recurrent cell runs in a loop over time, although all its inputs are known beforehand.

    What it does
    Finds recurrent cells (LSTMCell, GRUCell, RNNCell) that the model calls at least four times with
    inputs that do not depend on the cell's own earlier results, and prices them as one recurrent layer,
    whose input products are one product over all time steps.

    Why it costs
    Each call multiplies one time step's rows by the input weights and by the hidden weights, in small
    products one after the other, with the gates as separate kernels. nn.LSTM batches the time steps: the
    input half of the work is one large product, and cuDNN fuses the gates.

    Example
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))

    Use instead
        outputs, (h, c) = self.lstm(x)

    When it does not apply
    Decoders that feed back what they produced, attend with their state, or sample: their next input is
    not known. Cells with norms or dropout inside a step. Loops of only a few steps.
    """

    code = "ARC006"
    name = "rnn-cell-loop"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: concatenate activations over time",
        "NVIDIA Recurrent Layers User's Guide: how recurrent layers become matrix products",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        for loop in cell_loops(context.graph):
            if len(loop.steps) >= _FEWEST_STEPS and context.worth_pricing(indices_of(loop.steps)):
                yield self._finding(context, loop)

    def _finding(self, context: GraphContext, loop: Loop) -> Finding:
        concerned = indices_of(loop.steps)
        change = Change(edit=partial(with_joined_steps, loop=loop))
        effect = context.effect(concerned, change)
        cell = loop.steps[0].module_type or loop.steps[0].name
        return share_finding(
            self,
            context,
            loop.steps,
            cell,
            f" in {len(loop.steps)} calls, one per time step, though no input depends on an earlier "
            f"result; as one {cell.removesuffix('Cell')} layer it {gain_phrase(effect)}",
            effect=effect,
            advice=f"Use nn.{cell.removesuffix('Cell')} on the whole sequence instead of {cell} in a loop.",
            evidence={"steps": len(loop.steps)},
            change=change,
        )


_LAYERS = {"lstm_cell": "lstm", "gru_cell": "gru", "rnn_tanh_cell": "rnn_tanh", "rnn_relu_cell": "rnn_relu"}


@dataclass(frozen=True, slots=True)
class Loop:
    """The calls of one cell, each with the state from the call before."""

    steps: tuple[Op, ...]


def cell_loops(graph: Graph) -> tuple[Loop, ...]:
    """Chains of calls of one cell whose inputs do not depend on the cell's results."""
    calls: dict[str, list[Op]] = {}
    for op in graph.ops:
        weight = op.input("w_hh")
        if op.name in _LAYERS and weight is not None and weight.parameter is not None:
            calls.setdefault(weight.parameter, []).append(op)
    return tuple(
        Loop(tuple(steps)) for steps in calls.values() if len(steps) > 1 and _is_sequence(graph, steps)
    )


def _is_sequence(graph: Graph, steps: list[Op]) -> bool:
    if len({step.inputs[0].shape for step in steps}) > 1:
        return False
    # One pass over the later ops collects everything that depends on a call's results.
    depends: set[int] = {steps[0].index}
    own = {step.index for step in steps}
    for op in graph.ops[steps[0].index + 1 :]:
        if op.index in own:
            if op.inputs[0].producer in depends:
                return False
            depends.add(op.index)
        elif any(spec.producer in depends for spec in op.inputs):
            depends.add(op.index)
    return all(_state_of(step, before, graph) for before, step in pairwise(steps))


def _state_of(step: Op, before: Op, graph: Graph) -> bool:
    """Whether the step's hidden state is the result of the step before, possibly through views."""
    for producer in graph.producers(step.input("hx[0]") or step.input("hx")):
        if producer.index == before.index:
            return True
        if producer.kind != "view":
            return False
    return False


def with_joined_steps(graph: Graph, loop: Loop) -> Graph:
    """The graph with a loop replaced by one recurrent layer over all steps, at the place of the last call."""
    *others, last = (graph.ops[step.index] for step in loop.steps)
    if last.name not in _LAYERS:
        return graph
    length = len(loop.steps)
    batch, hidden = last.outputs[0].shape[-2:]
    source = last.inputs[0]
    sequence = (length, *source.shape[-2:])
    inputs, names = [source.reshaped(sequence)], ["input"]
    states = [
        (spec, name)
        for spec, name in zip(last.inputs, last.input_names, strict=True)
        if name.startswith("hx")
    ]
    for position, (spec, _) in enumerate(states):
        shape = (1, batch, hidden)
        inputs.append(spec.reshaped(shape))
        names.append(f"hx[{position}]" if last.name == "lstm_cell" else "hx")
    weights = [last.input(name) for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    present = [spec for spec in weights if spec is not None]
    for position, spec in enumerate(present):
        inputs.append(spec)
        names.append(f"params[{position}]")
    result = (length, batch, hidden)
    output = last.outputs[0].reshaped(result)
    state_shape = (1, batch, hidden)
    state = last.outputs[0].reshaped(state_shape)
    joined = replace(
        last,
        name=_LAYERS[last.name],
        inputs=tuple(inputs),
        input_names=tuple(names),
        outputs=(output, *(replace(state, output_index=1 + n) for n in range(len(states)))),
        attributes={
            "has_biases": len(present) == 4,
            "num_layers": 1,
            "dropout": 0.0,
            "train": True,
            "bidirectional": False,
            "batch_first": False,
        },
    )
    changed = {op.index: op.emptied() for op in others}
    return graph.with_ops(changed | {last.index: joined})
