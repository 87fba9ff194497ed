"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.widths.interfaces import interface_findings
from tclint.analysis.widths.misalignment import misalignment_findings
from tclint.core.finding import Finding
from tclint.core.rule import Example


class RnnMisaligned(GraphRule):
    """A recurrent layer's hidden or input size is not a multiple of what Tensor Cores run at full speed.

    What it does
    Looks at the hidden and input sizes of every traced nn.LSTM, nn.GRU and nn.RNN (8 for fp16 and bf16,
    4 for TF32) and prices the padded ones together with everything coupled to them: the next layers, the
    decoder, both directions.

    Why it costs
    A recurrent layer is a chain of matrix products with its hidden size, one per time step, which cannot
    overlap; each runs on a slower kernel when the size is misaligned, and cuDNN's persistent kernels need
    hidden and input sizes that are multiples of 32.

    Example
        nn.LSTM(512, 650, num_layers=2)

    Use instead
        nn.LSTM(512, 672, num_layers=2)

    When it does not apply
    The size of the model's own input (a filter bank of 80, a coordinate pair) is the data's: there zeros
    appended to it are priced. Layers whose time is a small part of the step are not reported.

    References
    NVIDIA, Recurrent Layers User's Guide, checklist.
    NVIDIA, cuDNN Developer Guide, persistent recurrent kernels: hidden and input sizes multiples of 32.
    """

    code = "DIM004"
    name = "rnn-misaligned"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Recurrent Layers User's Guide, checklist",
        "NVIDIA cuDNN Developer Guide, recurrent neural networks",
    )
    invalid = (
        Example(
            """
from torch import nn, zeros, long


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10000, 650)
        self.lstm = nn.LSTM(650, 650, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(650, 10000)

    def forward(self, tokens):
        return self.decoder(self.lstm(self.embed(tokens))[0])


def build_model():
    return Model()


def example_inputs():
    return zeros(64, 64, dtype=long)
""",
            "the medium language model of Zaremba et al.",
        ),
        Example(
            """
from torch import empty, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(80, 1001, num_layers=3, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]


def build_model():
    return Model()


def example_inputs():
    return empty(128, 100, 80)
""",
            "an odd hidden size",
        ),
        Example(
            """
from torch import empty, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(80, 513)
        self.lstm = nn.LSTM(513, 513, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.lstm(self.project(x))[0]


def build_model():
    return Model()


def example_inputs():
    return empty(256, 64, 80)
""",
            "both directions, and the projection in front, change with the hidden size",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.LSTM(257, 512, num_layers=2, bidirectional=True, batch_first=True)


def example_inputs():
    return empty(64, 200, 257)
""",
            "257 frequencies are the data's: zeros appended to them",
        ),
    )
    valid = (
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.LSTM(512, 672, num_layers=2, batch_first=True)


def example_inputs():
    return empty(64, 64, 512)
""",
            "aligned",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.LSTM(3, 256, batch_first=True)


def example_inputs():
    return empty(64, 64, 3)
""",
            "three coordinates per step are the data's",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.GRU(40, 256, batch_first=True)


def example_inputs():
    return empty(64, 64, 40)
""",
            "40 coefficients per frame",
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from misalignment_findings(self, context, frozenset({"rnn"}))
        yield from interface_findings(self, context, "rnn")


RULES = (RnnMisaligned,)
