"""Widths of linear and convolution layers against the multiples that Tensor Cores want."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.compile_fixes import PADS, marked_if_handled
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.widths.interfaces import interface_findings
from tclint.analysis.widths.misalignment import misalignment_findings
from tclint.core.finding import Finding
from tclint.core.rule import Example


class LinearMisaligned(GraphRule):
    """A linear layer's width is not a multiple of what Tensor Cores run at full speed.

    What it does
    Looks at in_features and out_features of every traced linear layer and matrix product (8 for fp16 and
    bf16, 4 for TF32), pads the misaligned ones together with everything coupled to them, and reports the
    padding that gains most, priced for the whole step, forward and backward. Widths that a layer is given -
    input features, a concatenation of such - stay as they are: there zeros appended to the data are priced.

    Why it costs
    A row of a matrix whose length is not a multiple of 16 bytes cannot be read with the widest loads.
    cuBLAS 11 and later then choose slower kernels, earlier ones leave the Tensor Cores unused altogether.
    The slowest of the three matrices decides, in the forward product and in both backward ones.

    Example
        hidden = int(8 / 3 * 1024)            # 2730
        nn.Linear(1024, hidden)

    Use instead
        hidden = 64 * round(8 / 3 * 1024 / 64)  # 2752
        nn.Linear(1024, hidden)

    When it does not apply
    One to four inputs or outputs are interfaces and never reported. A class count is padded (and masked)
    only if that pays. In fp32 without TF32 any width is as good as another.
    torch.compile pads such products itself where it finds that worth it. Weights trained with the old
    width do not fit the new one.

    References
    NVIDIA, Linear/Fully-Connected Layers User's Guide, checklist: batch, inputs and outputs divisible by
    4 (TF32), 8 (fp16), 16 (int8); at least 64 and ideally 256 where one of them is small.
    NVIDIA, Matrix Multiplication Background User's Guide, Table 1.
    """

    code = "DIM001"
    name = "linear-misaligned"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Linear/Fully-Connected Layers User's Guide, checklist",
        "NVIDIA Matrix Multiplication Background User's Guide, Table 1",
    )
    invalid = (
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(1024, 2730), nn.SiLU(), nn.Linear(2730, 1024))


def example_inputs():
    return empty(8, 1024, 1024)
""",
            "8/3 of the model width, as gated feed-forward layers are often sized",
        ),
        Example(
            """
from torch import empty, nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def build_model():
    return nn.Sequential(nn.Linear(64, 1001), *[Block(1001) for _ in range(3)])


def example_inputs():
    return empty(8, 512, 64)
""",
            "an odd model width runs through every residual block: one finding, all blocks padded together",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(512, 1023), nn.ReLU(), nn.Linear(1023, 1023), nn.Linear(1023, 8))


def example_inputs():
    return empty(16384, 512)
""",
            "TF32 wants multiples of 4",
            {"precision": "tf32", "gpus": ("a100",)},
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 21841))


def example_inputs():
    return empty(2048, 1024)
""",
            "a class count this large pays for padding and masking",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(1433, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.Linear(4096, 7))


def example_inputs():
    return empty(2048, 1433)
""",
            "1433 features are what the data has: zeros appended to them cost less than they save",
        ),
        Example(
            """
from torch import cat, empty, nn


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(700 + 413, 2048), nn.ReLU(), nn.Linear(2048, 1024))

    def forward(self, query, item):
        return self.layers(cat([query, item], 1))


def build_model():
    return Tower()


def example_inputs():
    return empty(8192, 700), empty(8192, 413)
""",
            "two given widths, concatenated",
        ),
    )
    valid = (
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(1024, 2752), nn.SiLU(), nn.Linear(2752, 1024))


def example_inputs():
    return empty(8, 1024, 1024)
""",
            "multiples of 64",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))


def example_inputs():
    return empty(65536, 2)
""",
            "coordinates in, a score out: interfaces, not choices",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(1440, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.Linear(4096, 7))


def example_inputs():
    return empty(2048, 1440)
""",
            "seven classes cost nothing next to the rest",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(1024, 1001), nn.ReLU(), nn.Linear(1001, 1024))


def example_inputs():
    return empty(4096, 1024)
""",
            "fp32 runs on CUDA cores, where no width is special",
            {"precision": "fp32"},
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        def check(eager_or_compiled: GraphContext) -> Iterator[Finding]:
            yield from misalignment_findings(self, eager_or_compiled, frozenset({"linear", "matmul"}))
            yield from interface_findings(self, eager_or_compiled, "linear")

        yield from marked_if_handled(context, check, PADS)


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
    Because cuDNN pads by itself, most misaligned channels cost less than is worth a report; the predicted
    gain decides. One to three image channels belong to first-layer-C3; more of them (spectral bands) are
    the data's, and zeros appended to them are priced. Depthwise and grouped convolutions belong to
    depthwise-conv and grouped-conv-shape, outputs of one to four channels to nobody.

    References
    NVIDIA, Convolutional Layers User's Guide, checklist and section Channels In and Out.
    NVIDIA, cuDNN Developer Guide, Tensor Core operations: channels divisible by 8.
    """

    code = "DIM002"
    name = "conv-misaligned"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Convolutional Layers User's Guide, checklist and Channels In and Out",
        "NVIDIA cuDNN Developer Guide, Tensor Core operations",
    )
    invalid = (
        Example(
            """
from torch import channels_last, empty, nn


def build_model():
    stem = nn.Conv2d(3, 100, 3, stride=2, padding=1)
    body = [nn.Conv2d(100, 100, 3, padding=1) for _ in range(4)]
    return nn.Sequential(stem, *body).to(memory_format=channels_last)


def example_inputs():
    return empty(64, 3, 224, 224).to(memory_format=channels_last)
""",
            "100 channels, built in a loop: every convolution pads its tensors to 104",
        ),
        Example(
            """
from torch import channels_last, empty, nn


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        return x + self.second(self.norm(self.first(x)).relu())


def build_model():
    blocks = [Residual(60) for _ in range(3)]
    model = nn.Sequential(nn.Conv2d(3, 60, 3, 2, 1), *blocks, nn.Conv2d(60, 64, 1))
    return model.to(memory_format=channels_last)


def example_inputs():
    return empty(32, 3, 224, 224).to(memory_format=channels_last)
""",
            "residual sums and norms change with the channels",
        ),
        Example(
            """
from torch import channels_last, empty, nn


def build_model():
    model = nn.Sequential(nn.Conv2d(3, 65, 3, 2, 1), nn.Conv2d(65, 65, 3, 1, 1), nn.Conv2d(65, 128, 3, 2, 1))
    return model.to(memory_format=channels_last)


def example_inputs():
    return empty(32, 3, 256, 256).to(memory_format=channels_last)
""",
            "TF32 wants multiples of 4",
            {"precision": "tf32", "gpus": ("a100",)},
        ),
        Example(
            """
from torch import channels_last, empty, nn


def build_model():
    body = [nn.Conv2d(13, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)]
    return nn.Sequential(*body).to(memory_format=channels_last)


def example_inputs():
    return empty(32, 13, 256, 256).to(memory_format=channels_last)
""",
            "a satellite's 13 bands are the data's: zeros appended to them",
        ),
    )
    valid = (
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU())


def example_inputs():
    return empty(64, 3, 224, 224)
""",
            "RGB is an interface; the rest is aligned",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 1, 1))


def example_inputs():
    return empty(16, 64, 128, 128)
""",
            "a mask has one channel",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(64, 100, 3, padding=1, bias=False), nn.Conv2d(100, 64, 3, padding=1))


def example_inputs():
    return empty(16, 64, 56, 56)
""",
            "fp32 runs on CUDA cores, where no number of channels is special",
            {"precision": "fp32"},
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from misalignment_findings(self, context, frozenset({"conv"}))
        yield from interface_findings(self, context, "conv")


RULES = (LinearMisaligned, ConvMisaligned)
