"""Whether a kernel that ran used Tensor Cores, how well, and if not, why not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tclint.profile.kernel_names import GENERATIONS, MATRIX_KINDS, KernelName, instructions_of, kernel_name
from tclint.profile.trace import Device, Kernel, Operator
from tclint.profile.works import convolution_sizes, dtype_of, gemm_of, product_sizes

KernelUse = Literal["on", "older", "misaligned", "possible", "narrow", "none", "unknown"]

TITLES: dict[KernelUse, str] = {
    "on": "on Tensor Cores",
    "misaligned": "on Tensor Cores, misaligned",
    "older": "on Tensor Cores, instructions of an older generation",
    "possible": "could run on Tensor Cores and did not",
    "narrow": "matrix work too narrow for Tensor Cores",
    "none": "no matrix work",
    "unknown": "unknown kernels",
}
"""In the order of reports."""
ON_TENSOR_CORES: frozenset[KernelUse] = frozenset({"on", "misaligned", "older"})

SMALL = 32
"""A dim below which cuBLAS often leaves Tensor Cores: half of the TF32 products with K <= 40 in published
traces ran on CUDA cores."""

_BYTES = {"fp16": 2, "bf16": 2, "tf32": 4, "fp8": 1, "int8": 1}
_WANTED_BYTES = 16
"""NVIDIA, Matrix Multiplication Background, table 1: dims in multiples of 16 bytes."""
_PRECISIONS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
_HAS_FP64 = {(8, 0), (9, 0), (10, 0)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one kernel stands to Tensor Cores."""

    use: KernelUse
    kind: str
    """The kind of the kernel, by kernel_names.toml."""
    reason: str = ""
    """Why it is misaligned, older, narrow, or was not on Tensor Cores at all."""
    precision: str | None = None


class Judge:
    """Verdicts on the kernels of one trace: some follow from what other kernels show."""

    def __init__(self, device: Device, kernels: Iterable[Kernel]) -> None:
        self._capability = device.compute_capability
        generation = None
        if device.compute_capability is not None:
            major, minor = device.compute_capability
            generation = instructions_of(f"{major}{minor}")
        self._has_tf32 = self._capability is None or self._capability >= (8, 0)
        self._generation = None if generation is None else GENERATIONS.index(generation)
        self.tf32_kinds = frozenset(
            found.kind
            for kernel in kernels
            if (found := kernel_name(kernel.name)).tensor_cores == "yes" and found.precision == "tf32"
        )
        """Kinds of matrix work that ran in TF32 somewhere in the trace."""

    def verdict(self, kernel: Kernel) -> Verdict:
        """How a kernel stands to Tensor Cores."""
        if kernel.activity != "kernel":
            return Verdict("none", kernel.activity)
        name = _told(kernel)
        if name.kind not in MATRIX_KINDS:
            return Verdict("unknown" if name.tensor_cores == "unknown" else "none", name.kind)
        precision = name.precision or _PRECISIONS.get(dtype_of(kernel.operator) or "")

        def found(use: KernelUse, reason: str = "") -> Verdict:
            return Verdict(use, name.kind, reason, precision)

        state = name.tensor_cores
        if state == "16-bit":
            state = "yes" if precision in ("fp16", "bf16", "fp8", "int8") else "unknown"
        if state == "unknown":
            return found("unknown", "the kernel's name does not tell")
        if state == "yes":
            return found(*self._on(name, kernel))
        narrow = _why_narrow(kernel)
        if narrow:
            return found("narrow", narrow)
        return found(*self._why_not(name.kind, precision, kernel))

    def _on(self, name: KernelName, kernel: Kernel) -> tuple[KernelUse, str]:
        size = _BYTES.get(name.precision or "")
        if name.alignment is not None and size is not None and name.alignment * size < _WANTED_BYTES:
            multiple = _WANTED_BYTES // size
            dims = _misaligned(kernel, multiple)
            which = f": {', '.join(dims)}" if dims else ""
            return "misaligned", f"dims that are not multiples of {multiple}{which}"
        older = name.generation is not None and self._generation is not None
        if older and GENERATIONS.index(name.generation or "") < (self._generation or 0):
            return "older", f"{(name.generation or '').capitalize()}'s instructions"
        return "on", ""

    def _why_not(self, kind: str, precision: str | None, kernel: Kernel) -> tuple[KernelUse, str]:
        if precision == "fp64":
            if self._capability in _HAS_FP64:
                return "possible", "float64, for which this GPU has Tensor Cores"
            return "none", "float64"
        if precision == "fp32" and self._capability is None:
            return "possible", "float32, on a GPU that the trace does not name"
        if precision == "fp32" and not self._has_tf32:
            why = "float32, for which this GPU has no Tensor Cores; autocast to float16 uses them"
            return "possible", why
        if precision == "fp32" and kind not in self.tf32_kinds:
            return "possible", "float32 without TF32"
        multiple = 4 if precision == "fp32" else 8
        dims = _misaligned(kernel, multiple)
        small = _small(kernel.operator)
        if small and (self._has_tf32 or not dims):
            return "possible", f"small dims: {small}"
        if dims:
            return "possible", f"dims that are not multiples of {multiple}: {', '.join(dims)}"
        if precision is None:
            return "possible", "precision not recorded"
        chosen = "in TF32 elsewhere, yet here" if precision == "fp32" else f"{precision}, yet"
        return "possible", f"{chosen} the library chose a kernel for CUDA cores"


def _told(kernel: Kernel) -> KernelName:
    """What a kernel's name tells; of Inductor's nameless ones, what the operator tells that launched them:
    'triton_poi_fused_add_0' runs 'triton__0d1d2d'."""
    name = kernel_name(kernel.name)
    if name.kind == "fused" and kernel.operator is not None and kernel.operator.name.startswith("triton_"):
        return kernel_name(kernel.operator.name)
    return name


def _why_narrow(kernel: Kernel) -> str:
    product, convolution = product_sizes(kernel.operator), convolution_sizes(kernel.operator)
    if product is not None and 1 in (product.m, product.n, product.k):
        return "a product with a vector" if 1 in (product.m, product.n) else "K = 1"
    if convolution is not None and convolution.is_depthwise:
        return "a depthwise convolution multiplies no matrices"
    if product is None and any(word in kernel.name for word in ("gemv", "dot_kernel", "gemmk1")):
        return "a product with a vector"
    return ""


def _misaligned(kernel: Kernel, multiple: int) -> list[str]:
    """Dims that lie contiguous in memory and are no multiples: 'K 3137'; of all dims where the trace does not
    tell which of them do."""
    operator = kernel.operator
    product, convolution = product_sizes(operator), convolution_sizes(operator)
    if product is not None:
        dims = product.dims
        gemm = gemm_of(operator, [kernel.name])
        is_told = operator is not None and (operator.strides or kernel_name(kernel.name).layout)
        if gemm is not None and is_told:
            dims = {letter.upper(): size for letter, size in sorted(dict(gemm.contiguous).items())}
    elif convolution is not None:
        dims = {"input channels": convolution.in_channels, "output channels": convolution.out_channels}
    else:
        return []
    return [f"{name} {size}" for name, size in dims.items() if size % multiple]


def _small(operator: Operator | None) -> str:
    product = product_sizes(operator)
    dims = product.dims if product is not None else {}
    return ", ".join(f"{name} {size}" for name, size in dims.items() if size <= SMALL)
