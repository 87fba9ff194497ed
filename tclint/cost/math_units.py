"""Which arithmetic unit really runs a dtype on a GPU, under torch's switches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tclint.config.precisions import PRECISION_FACTS
from tclint.config.settings import Precision
from tclint.cost.gpu import Gpu
from tclint.graph.ops.spec import ITEMSIZE_BYTES


@dataclass(frozen=True, slots=True)
class UnitClass:
    """The precision class in which a matrix product runs on one GPU."""

    name: str
    """Key of Gpu.peak_tflops."""
    calibration: str
    """Second part of the key of Gpu.calibrations."""
    element_bytes: int
    """The bytes of an operand's element in memory."""
    tensor_cores: bool
    reason: str
    """One clause for the user: which format, or why no Tensor Cores."""
    work_factor: int = 1
    """Real multiply-adds per multiply-add: 4 for complex numbers."""
    modelled: bool = True
    """False where the calibration is of another class, standing in for this one."""


def tf32_switches(precision: Precision) -> tuple[bool, bool]:
    """Whether float32 (matrix products of cuBLAS, convolutions and recurrent layers of cuDNN) may use TF32.

    torch's defaults are off and on (torch.backends.cuda.matmul and torch.backends.cudnn, `allow_tf32`); they
    hold for what autocast leaves in float32. 'fp32' means strict float32, both off.
    """
    facts = PRECISION_FACTS[precision]
    return facts.matmul_tf32, facts.cudnn_tf32


NEEDED_CAPABILITY = {"bf16": "8.0", "tf32": "8.0", "fp16": "7.0", "int8": "7.2", "fp8": "8.9"}
"""First compute capability with Tensor Cores for a format (NVIDIA, CUDA C++ Programming Guide, warp matrix
functions; fp8: torch._scaled_mm's own check)."""


@cache
def _capability_text(name: str) -> str:
    return f"needs compute capability {NEEDED_CAPABILITY[name]}"


def why_no_formula(gpu: Gpu, dtype: str) -> str:
    """Why products of a dtype have no price on a GPU, as a clause."""
    format_ = "fp8" if dtype.startswith("float8_e") else "int8" if "int8" in dtype else None
    if format_ is None or gpu.supports(format_):
        return f"no formula for {dtype} matrix products on {gpu.name}"
    capability = "{}.{}".format(*gpu.compute_capability)
    fails = "torch raises an error" if format_ == "fp8" else "no formula for CUDA cores"
    needed = _capability_text(format_)
    return f"{dtype} matrix products on {gpu.name}: {format_} {needed}, this is {capability}; {fails}"


def unit_class(gpu: Gpu, dtype: str, *, tf32: bool) -> UnitClass | None:
    """The class that a dtype runs in; None where tclint has no formula for it (a gap).

    Args:
        dtype: torch's name without the prefix.
        tf32: whether float32 may use TF32 here (see tf32_switches).
    """
    capability = "{}.{}".format(*gpu.compute_capability)
    if dtype == "float16":
        if gpu.supports("fp16"):
            return UnitClass("fp16", "half", 2, True, "fp16 Tensor Cores")
        return UnitClass("fp32", "fp32", 2, False, f"fp16 {_capability_text('fp16')}, this is {capability}")
    if dtype == "bfloat16":
        if gpu.supports("bf16"):
            return UnitClass("bf16", "half", 2, True, "bf16 Tensor Cores")
        reason = (
            f"no bf16 Tensor Cores: bf16 {_capability_text('bf16')}, this is {capability}; "
            "it runs in fp32 on CUDA cores"
        )
        return UnitClass("fp32", "fp32", 2, False, reason, modelled=False)
    if dtype == "float32":
        if tf32 and gpu.supports("tf32"):
            return UnitClass("tf32", "tf32", 4, True, "TF32 Tensor Cores")
        if tf32:
            reason = (
                f"no TF32 Tensor Cores: TF32 {_capability_text('tf32')}, this is {capability}; "
                "it runs in fp32 on CUDA cores"
            )
        else:
            reason = "float32 with TF32 off runs on CUDA cores"
        return UnitClass("fp32", "fp32", 4, False, reason)
    if dtype == "float64" and gpu.supports("fp64"):
        if gpu.compute_capability in ((8, 0), (9, 0), (10, 0)):
            return UnitClass("fp64", "fp32", 8, True, "fp64 Tensor Cores", modelled=False)
        reason = "float64 runs on this GPU's few fp64 units"
        return UnitClass("fp64", "fp32", 8, False, reason, modelled=False)
    if dtype in ("int8", "uint8", "qint8", "quint8") and gpu.supports("int8"):
        return UnitClass("int8", "half", 1, True, "int8 Tensor Cores", modelled=False)
    if dtype.startswith("float8_e") and gpu.supports("fp8"):
        return UnitClass("fp8", "half", 1, True, "fp8 Tensor Cores", modelled=False)
    if dtype in ("complex64", "complex128"):
        name = "fp32" if dtype == "complex64" else "fp64"
        if gpu.supports(name):
            size = ITEMSIZE_BYTES[dtype]
            reason = "complex products run on CUDA cores"
            return UnitClass(name, "fp32", size, False, reason, work_factor=4, modelled=False)
    return None
