"""What the names of `--precision` mean: dtypes, autocast, the TF32 switches, and formats of linear layers.

torch's own terms: 'fp16' and 'bf16' are torch.autocast around a float32 model, 'pure-*' is model.half() or
model.bfloat16(). TF32 has two switches, one for matrix products (cuBLAS) and one for convolutions and
recurrent layers (cuDNN); torch leaves the first off and the second on, which is 'tf32-cudnn'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tclint.config.settings import Mode, Precision

LinearFormat = Literal["fp8", "int8"]


@dataclass(frozen=True, slots=True)
class PrecisionFacts:
    """One precision."""

    title: str
    """For reports: 'fp16 autocast'."""
    dtype: str
    """torch's name of the dtype that most products run in."""
    unit: str
    """Key of Gpu.peak_tflops for them."""
    multiple: int | None
    """Elements that contiguous dims should be multiples of (NVIDIA, Matrix Multiplication Background, table
    1; torch._scaled_mm takes no others in fp8); None where any size is as good."""
    largest_multiple: int | None = None
    """The same table, "on A100 most efficient": 128 bytes."""
    autocast: bool = False
    converted: bool = False
    """Weights, buffers and inputs have the dtype themselves."""
    matmul_tf32: bool = False
    cudnn_tf32: bool = True
    """torch's default for what stays in float32."""
    linear: LinearFormat | None = None
    """Format of the linear layers, by torchao; everything else runs in `dtype`."""


PRECISION_FACTS: Mapping[Precision, PrecisionFacts] = {
    "fp64": PrecisionFacts("fp64, model.double()", "float64", "fp64", 2, 16, converted=True),
    "fp32": PrecisionFacts("fp32, no autocast", "float32", "fp32", None, cudnn_tf32=False),
    "tf32-cudnn": PrecisionFacts("fp32 with TF32 in cuDNN only", "float32", "tf32", 4, 32),
    "tf32-matmul": PrecisionFacts(
        "fp32 with TF32 in matrix products only", "float32", "tf32", 4, 32, matmul_tf32=True, cudnn_tf32=False
    ),
    "tf32": PrecisionFacts("tf32, no autocast", "float32", "tf32", 4, 32, matmul_tf32=True),
    "fp16": PrecisionFacts("fp16 autocast", "float16", "fp16", 8, 64, autocast=True),
    "bf16": PrecisionFacts("bf16 autocast", "bfloat16", "bf16", 8, 64, autocast=True),
    "pure-fp16": PrecisionFacts("pure fp16, model.half()", "float16", "fp16", 8, 64, converted=True),
    "pure-bf16": PrecisionFacts("pure bf16, model.bfloat16()", "bfloat16", "bf16", 8, 64, converted=True),
    "fp8": PrecisionFacts(
        "fp8 linear layers, the rest bf16", "bfloat16", "fp8", 16, 128, autocast=True, linear="fp8"
    ),
    "int8": PrecisionFacts(
        "int8 linear layers, the rest bf16", "bfloat16", "int8", 16, 128, converted=True, linear="int8"
    ),
}
"""What each precision of the settings means. In inference the rest of 'fp8' is converted as well, as
torchao's quantize_ expects it."""

NO_BACKWARD: frozenset[Precision] = frozenset({"int8"})
"""torch._int_mm has no gradient, and torchao trains in int8 as a prototype only."""


def precision_title(precision: str) -> str:
    """How a report names it; the name itself where it is unknown."""
    facts = PRECISION_FACTS.get(precision)  # type: ignore[call-overload]
    return precision if facts is None else str(facts.title)


def why_impossible(precision: Precision, mode: Mode) -> str | None:
    """Why a step cannot run in that precision at all; None where it can."""
    if mode == "train" and precision in NO_BACKWARD:
        return "int8 products have no backward pass in torch: price --precision int8 with --mode infer"
    return None
