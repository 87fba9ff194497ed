"""Recurrent cells called step by step, as the source itself shows them."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Constant, Finding, Fix, SourceContext, SourceRule, Symbol, render
from tclint.plugin.source import TRAINS, Place

_FLOAT64 = Symbol("torch.float64")


class RnnCellLoopInSource(SourceRule):
    """A recurrent cell runs in a loop over time, although all its inputs are known beforehand.

    What it does
    Finds an LSTMCell, GRUCell or RNNCell that a Python loop of its class calls once per time step, where
    the step's input is a slice of a sequence that exists before the loop and the state goes unchanged
    from one step to the next. Nothing is run; for a traced model the calls are priced as well.

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
    not known. States that are masked, normalized, dropped out or reset between steps. Cell states (c)
    that are kept for every step, which nn.LSTM does not return. Loops that stop early or have fewer than
    four steps. Cells on the CPU, and in float64.
    """

    code = "ARC006"
    name = "rnn-cell-loop"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: concatenate activations over time",
        "NVIDIA Recurrent Layers User's Guide: how recurrent layers become matrix products",
    )
    triggers = ("LSTMCell(", "GRUCell(", "RNNCell(")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen = set[Place]()
        for step in context.cells.known_beforehand():
            call = step.first
            if call.place in seen or call.call is None or not context.concerns(call):
                continue
            seen.add(call.place)
            if call.changed.get("@device") == Constant("cpu") or call.changed.get("@dtype") == _FLOAT64:
                context.skip(call, "it runs on the CPU, or in float64")
                continue
            cell = render(call.call.function)
            yield self.finding(
                context.at(call),
                f"`{cell}` ({step.kind}Cell) runs once per time step, though no input depends on an "
                f"earlier result: nn.{step.kind} takes the whole sequence and joins the input products.",
                related=(context.also(step.loop.place, "the loop over time"),),
                evidence={"cell": f"{step.kind}Cell", "name": cell},
                fix=Fix(
                    f"Use nn.{step.kind} on the whole sequence instead of {step.kind}Cell in a loop; its "
                    "parameters have other names in checkpoints (weight_ih_l0 for weight_ih)."
                ),
                identity=f"{call.place.function.qualified_name}:{cell}",
            )
