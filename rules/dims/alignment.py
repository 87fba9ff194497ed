"""Widths of linear and convolution layers against the multiples that Tensor Cores want."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.widths.interfaces import interface_findings
from tclint.analysis.widths.misalignment import misalignment_findings
from tclint.plugin import Finding, GraphContext, GraphRule
from tclint.plugin.graph import annotate_if_compile_fixes


class LinearMisaligned(GraphRule):
    """A linear layer's width is not a multiple of what Tensor Cores run at full speed.

    What it does
    Looks at in_features and out_features of every traced linear layer and matrix product (8 for fp16 and
    bf16, 4 for TF32), pads the misaligned ones together with everything coupled to them, and reports the
    padding that gains most, priced for the whole step, forward and backward. Widths that the data
    prescribes - input features, or a concatenation of them - stay as they are; there, zeros appended to
    the data are priced.

    Why it costs
    A row of a matrix whose length is not a multiple of 16 bytes cannot be read with the widest loads.
    cuBLAS 11 and later then choose slower kernels; earlier versions leave the Tensor Cores unused
    altogether. The worst of the three matrices decides, in the forward product and in both backward ones.

    Example
        hidden = int(8 / 3 * 1024)            # 2730
        nn.Linear(1024, hidden)

    Use instead
        hidden = 64 * round(8 / 3 * 1024 / 64)  # 2752
        nn.Linear(1024, hidden)

    When it does not apply
    Layers with one to four inputs or outputs are interfaces and are never reported. A class count is
    padded (and masked) only if that pays off. In fp32 without TF32 any width is as good as another.
    torch.compile pads such products itself where it finds that worthwhile. Weights trained with the old
    width do not fit the new one.
    """

    code = "DIM001"
    name = "linear-misaligned"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Linear/Fully-Connected Layers User's Guide, checklist: batch, inputs and outputs "
        "divisible by 4 (TF32), 8 (fp16), 16 (int8); at least 64 and ideally 256 where one of them is "
        "small",
        "NVIDIA Matrix Multiplication Background User's Guide, Table 1: multiples for Tensor Cores by "
        "precision and library version",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        def check(eager_or_compiled: GraphContext) -> Iterator[Finding]:
            yield from misalignment_findings(self, eager_or_compiled, frozenset({"linear", "matmul"}))
            yield from interface_findings(self, eager_or_compiled, "linear")

        yield from annotate_if_compile_fixes(context, check)


class ConvMisaligned(GraphRule):
    """A convolution's channels are not a multiple of what Tensor Cores run at full speed.

    What it does
    Looks at the input and output channels of every dense traced convolution (8 for fp16 and bf16, 4 for
    TF32), pads the misaligned ones together with everything coupled to them - norms, residual sums,
    concatenations, the next layers - and reports the padding that gains most, priced for the whole step.

    Why it costs
    cuDNN 7.6.3 and later pad such channels inside the kernel: the Tensor Cores work on zeros, and extra
    kernels may copy the tensors into the padded layout. Before that version such layers used no Tensor
    Cores.

    Example
        nn.Conv2d(100, 100, 3, padding=1)

    Use instead
        nn.Conv2d(104, 104, 3, padding=1)

    When it does not apply
    Because cuDNN pads by itself, most misaligned channels cost too little to report; the predicted gain
    decides. One to three image channels are left to first-layer-c3; larger numbers (spectral bands)
    belong to the data, and zeros appended to it are priced. Depthwise and grouped convolutions are left
    to depthwise-conv and grouped-conv-shape. Outputs of one to four channels are not reported.
    """

    code = "DIM002"
    name = "conv-misaligned"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Convolutional Layers User's Guide, Channels In And Out: channels in multiples of 8 (fp16)"
        " or 4 (TF32)",
        "NVIDIA cuDNN 8 Developer Guide, Tensor Core operations: channels divisible by 8",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from misalignment_findings(self, context, frozenset({"conv"}))
        yield from interface_findings(self, context, "conv")


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
