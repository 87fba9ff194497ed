"""Recurrent cells called step by step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tclint.analysis.cells import Loop, cell_loops, with_joined_steps
from tclint.analysis.change import Change
from tclint.analysis.layers import gain_phrase, indices_of, worth_pricing
from tclint.analysis.share_findings import share_finding
from tclint.plugin import Finding, GraphContext, GraphRule

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
            if len(loop.steps) >= _FEWEST_STEPS and worth_pricing(context, indices_of(loop.steps)):
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
