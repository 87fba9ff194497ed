"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.widths.interfaces import interface_findings
from tclint.analysis.widths.misalignment import misalignment_findings
from tclint.plugin import Finding, GraphContext, GraphRule


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
    The size of the model's own input (80 filter banks, a coordinate pair) belongs to the data: there,
    zeros appended to it are priced. Layers whose time is a small part of the step are not reported.
    """

    code = "DIM004"
    name = "rnn-misaligned"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Recurrent Layers User's Guide, checklist: hidden size and batch in multiples of 8 (fp16) "
        "or 4 (TF32)",
        "NVIDIA cuDNN 8 Developer Guide, recurrent neural networks: persistent kernels need hidden and "
        "input sizes in multiples of 32",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from misalignment_findings(self, context, frozenset({"rnn"}))
        yield from interface_findings(self, context, "rnn")
