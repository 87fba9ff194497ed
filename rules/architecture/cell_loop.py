"""Recurrent cells called step by step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tclint.analysis.cells import Loop, cell_loops, with_joined_steps
from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.layers import gain_phrase, indices_of, worth_pricing
from tclint.analysis.sharing import share_finding
from tclint.core.finding import Finding
from tclint.core.rule import Example

_FEWEST_STEPS = 4


class RnnCellLoop(GraphRule):
    """A recurrent cell runs in a loop over time, though its inputs are all known beforehand.

    What it does
    Finds recurrent cells (LSTMCell, GRUCell, RNNCell) that the model calls at least four times with
    inputs that do not depend on the cell's own earlier results, and prices them as one recurrent layer,
    whose input products are one product over all time steps.

    Why it costs
    Each call multiplies one time step's rows with the input weights and with the hidden weights, in small
    products one after the other, with the gates as kernels of their own. nn.LSTM concatenates the steps:
    the input half of the work is one large product, and cuDNN fuses the gates.

    Example
        for x in sequence:
            h, c = self.cell(x, (h, c))

    Use instead
        outputs, (h, c) = self.lstm(sequence)

    When it does not apply
    Decoders that feed back what they produced, attend with their state, or sample: their next input is
    not known. Cells with norms or dropout inside a step. A loop of a few steps.

    References
    NVIDIA, Train With Mixed Precision, Optimizing for Tensor Cores: concatenate activations over time.
    NVIDIA, Recurrent Layers User's Guide.
    """

    code = "ARC006"
    name = "rnn-cell-loop"
    since = "0.1.0"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores",
        "NVIDIA Recurrent Layers User's Guide",
    )
    invalid = (
        Example(
            """
from torch import empty, nn, stack


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x):
        state, outputs = None, []
        for step in x.unbind(0):
            state = self.cell(step, state)
            outputs.append(state[0])
        return stack(outputs)


def build_model():
    return Encoder(512)


def example_inputs():
    return empty(32, 64, 512)
""",
            "an LSTM over a known sequence",
        ),
        Example(
            """
from torch import empty, nn


class Reader(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, 8)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


def build_model():
    return Reader(512)


def example_inputs():
    return empty(64, 24, 512)
""",
            "a GRU of which the last state counts",
        ),
        Example(
            """
from torch import empty, nn


class Projected(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(80, width)
        self.cell = nn.RNNCell(width, width)

    def forward(self, x):
        h = x.new_zeros(x.shape[1], self.cell.hidden_size)
        for step in x:
            h = self.cell(self.proj(step).relu(), h)
        return h


def build_model():
    return Projected(512)


def example_inputs():
    return empty(32, 64, 80)
""",
            "a layer before the cell depends on the input only",
        ),
    )
    valid = (
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.LSTM(512, 512)


def example_inputs():
    return empty(32, 64, 512)
""",
            "one layer already",
        ),
        Example(
            """
from torch import empty, nn, stack


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        state, outputs = None, []
        for _ in range(32):
            state = self.cell(x, state)
            x = self.out(state[0])
            outputs.append(x)
        return stack(outputs)


def build_model():
    return Decoder(512)


def example_inputs():
    return empty(64, 512)
""",
            "feeds back what it produced",
        ),
        Example(
            """
from torch import empty, nn


class Attentive(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(2 * width, width)

    def forward(self, x, memory):
        h = c = x.new_zeros(x.shape[1], x.shape[2])
        for step in x:
            weights = (memory @ h.unsqueeze(-1)).softmax(1)
            context = (weights * memory).sum(1)
            h, c = self.cell(nn.functional.pad(step, (0, step.shape[-1])) + context.repeat(1, 2), (h, c))
        return h


def build_model():
    return Attentive(256)


def example_inputs():
    return empty(32, 64, 256), empty(64, 20, 256)
""",
            "attends with its state",
        ),
        Example(
            """
from torch import empty, nn


class Stacked(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(width, width) for _ in range(8)])
        self.body = nn.Linear(width, width)

    def forward(self, x):
        for cell in self.cells:
            x = cell(x)
        return self.body(x)


def build_model():
    return Stacked(512)


def example_inputs():
    return empty(64, 512)
""",
            "different cells one after the other: depth, not time",
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        for loop in cell_loops(context.graph):
            if len(loop.steps) >= _FEWEST_STEPS and worth_pricing(context, indices_of(loop.steps)):
                yield self._finding(context, loop)

    def _finding(self, context: GraphContext, loop: Loop) -> Finding:
        concerned = indices_of(loop.steps)
        effect = context.effect(concerned, graph=with_joined_steps(context.graph, loop))
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
            change=Change(edit=partial(with_joined_steps, loop=loop)),
        )


RULES = (RnnCellLoop,)
