"""Recurrent cells called step by step, as the source itself shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.layers.cell_loops import cells_known_beforehand
from tclint.source.names.queries import is_test_path
from tclint.source.source_rule import SourceRule

if TYPE_CHECKING:
    from tclint.source.context import SourceContext


class RnnCellLoopInSource(SourceRule):
    """A recurrent cell runs in a loop over time, though its inputs are all known beforehand.

    What it does
    Finds an LSTMCell, GRUCell or RNNCell of a class that a Python loop calls once per time step, where the
    step's input is a slice of a sequence that exists before the loop and the state goes unchanged from
    one step to the next, without running the code. On a traced model it prices the calls as well.

    Why it costs
    Each call multiplies one time step's rows with the input weights and with the hidden weights, in small
    products one after the other, with the gates as kernels of their own. nn.LSTM concatenates the steps:
    the input half of the work is one large product, and cuDNN fuses the gates.

    Example
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))

    Use instead
        outputs, (h, c) = self.lstm(x)

    When it does not apply
    Decoders that feed back what they produced, attend with their state, or sample: their next input is
    not known. States that are masked, normalised, dropped out or reset between steps. Cell states (c) that
    are kept for every step, which nn.LSTM does not return. Loops that stop early, and those of fewer
    than four steps.

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
    triggers = ("LSTMCell(", "GRUCell(", "RNNCell(")
    requires = ("for ", "class ")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        for step in cells_known_beforehand(context):
            yield self.finding(
                context.location(step.call.site),
                f"`{step.cell}` ({step.kind}Cell) runs once per time step, though no input depends on an "
                f"earlier result: nn.{step.kind} takes the whole sequence and joins the input products.",
                related=(context.related(step.function.blocks[step.loop].site, "the loop over time"),),
                evidence={"cell": f"{step.kind}Cell", "name": step.cell},
                fix=Fix(
                    f"Use nn.{step.kind} on the whole sequence instead of {step.kind}Cell in a loop; its "
                    "parameters have other names in checkpoints (weight_ih_l0 for weight_ih)."
                ),
                identity=f"{step.function.qualified_name}:{step.cell}",
            )

    valid = (
        Example(
            source="""\
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, state, targets):
        outputs = []
        for t in range(targets.size(1)):
            h, c = state
            state = self.cell(x, state)
            x = self.out(state[0]) + targets[:, t]
            outputs.append(x)
        return torch.stack(outputs)
""",
            note="feeds back what it produced",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Attentive(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(2 * width, width)
        self.attend = nn.Linear(width, width)

    def forward(self, x, memory, h, c):
        for step in x.unbind(1):
            weights = (memory @ self.attend(h).unsqueeze(-1)).softmax(1)
            found = (weights * memory).sum(1)
            h, c = self.cell(torch.cat([step, found], 1), (h, c))
        return h
""",
            note="attends with its state",
        ),
        Example(
            source="""\
from torch import nn

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.GRUCell(256, 256)

    def forward(self, x, h, not_done):
        for t in range(x.shape[0]):
            h = h * not_done[t]
            h = self.core(x[t], h)
        return h
""",
            note="the state is reset between steps",
        ),
        Example(
            source="""\
from torch import nn

class Network(nn.Module):
    def __init__(self, lstm):
        super().__init__()
        self.lstm = nn.LSTM(256, 256)
        self.update = nn.GRUCell(256, 256)

    def forward(self, x, nodes, adjacency, steps):
        x, _ = self.lstm(x)
        for _ in range(steps):
            nodes = self.update(adjacency @ nodes, nodes)
        return x, nodes
""",
            note="message passing: the input is made of the state",
        ),
        Example(
            source="""\
from torch import cat, nn

class Remembering(nn.Module):
    def __init__(self, memory):
        super().__init__()
        self.memory = memory
        self.cell = nn.GRUCell(512, 256)

    def forward(self, x, h):
        for step in x.unbind(1):
            h = self.cell(cat([step, self.memory.read(step)], 1), h)
            self.memory.write(h)
        return h
""",
            note="what it reads depends on what it wrote",
        ),
        Example(
            source="""\
from torch import nn

class Traced(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(256, 256)

    def forward(self, x, h, c):
        outputs, cells = [], []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
            cells.append(c)
        return outputs, cells
""",
            note="keeps the cell state of every step, which nn.LSTM does not return",
        ),
        Example(
            source="""\
from torch import nn

class Stopping(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(256, 256)
        self.halt = nn.Linear(256, 1)

    def forward(self, x, h):
        for step in x.unbind(0):
            h = self.cell(step, h)
            if self.halt(h).sigmoid().mean() > 0.5:
                break
        return h
""",
            note="how far it reads depends on the state",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x, h, c):
        outputs = []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
        return torch.stack(outputs, 1)
""",
            note="an LSTM over a known sequence",
        ),
        Example(
            source="""\
import torch.nn as nn

class Reader(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, 8)

    def forward(self, tokens, seq_len):
        h = None
        for t in range(seq_len):
            step = self.embedding(tokens[:, t]).relu()
            h = self.cell(step, h)
        return self.head(h)
""",
            note="a layer before the cell depends on the input only",
        ),
        Example(
            source="""\
from torch import nn, stack

class Projected(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(80, width)
        self.cell = nn.RNNCell(width, width)

    def forward(self, x, state):
        outputs = []
        for position, step in enumerate(x.unbind(1)):
            state = self.cell(self.proj(step), state)
            outputs.append(state)
        return stack(outputs)
""",
            note="the sequence is taken apart before the loop",
        ),
    )


RULES: tuple[type[Rule], ...] = (RnnCellLoopInSource,)
