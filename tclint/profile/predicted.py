"""Operators of a trace beside what the cost model says of their recorded sizes, without a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tclint.config.settings import Precision
from tclint.cost.gpu import Gpu
from tclint.cost.rows import Price
from tclint.graph.lowering.work import Gemm, Work
from tclint.profile.kernel_names import kernel_name
from tclint.profile.tensor_cores import Judge
from tclint.profile.trace import Kernel, Operator, Trace
from tclint.profile.works import work_of

_AUTOCAST: dict[str, Precision] = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class PricedOperator:
    """One operator of a trace, all its calls of the same sizes."""

    operator: Operator
    work: Work
    precision: Precision
    """With torch's switches as the trace shows them."""
    time_us: float
    """Mean of its calls, all kernels of each."""
    calls: int
    on_tensor_cores: bool
    """By the names of its kernels."""
    price: Price

    @property
    def error_percent(self) -> float:
        return 100.0 * (self.price.time_us / self.time_us - 1.0)

    @property
    def teraflops_per_s(self) -> float:
        """The rate of arithmetic that was reached."""
        return self.work.flops / self.time_us / 1e6


def priced_operators(trace: Trace, gpu: Gpu) -> Iterator[PricedOperator]:
    """The operators that tclint prices; products that were copied first are left out, as their copies are
    operators of their own."""
    from tclint.cost.kernels.pricing import price_works

    float32 = float32_precision(trace)
    by_call: dict[int, tuple[Operator, list[Kernel]]] = {}
    for kernel in trace.kernels:
        if kernel.operator is not None and kernel.activity == "kernel":
            by_call.setdefault(id(kernel.operator), (kernel.operator, []))[1].append(kernel)
    groups: dict[tuple[Any, ...], list[tuple[Operator, list[Kernel]]]] = defaultdict(list)
    for operator, own in by_call.values():
        names = tuple(kernel.name for kernel in own)
        groups[operator.name, operator.dims, operator.dtypes, operator.strides, names].append((operator, own))
    for key, calls in groups.items():
        operator, names = calls[0][0], key[-1]
        work = work_of(operator, names)
        time_us = sum(kernel.time_us for _, own in calls for kernel in own) / len(calls)
        if (
            work is None
            or not time_us
            or (isinstance(work, Gemm) and any("elementwise" in one for one in names))
        ):
            continue
        precision = _AUTOCAST.get(work.dtype) or float32
        (price,) = price_works([work], gpu, precision)
        if price is not None:
            on = any(kernel_name(name).tensor_cores == "yes" for name in names)
            yield PricedOperator(operator, work, precision, time_us, len(calls), on, price)


def float32_precision(trace: Trace) -> Precision:
    """Which of torch's TF32 switches the kernels show to have been on."""
    tf32_kinds = Judge(trace.device, trace.kernels).tf32_kinds
    ran = frozenset(kernel_name(kernel.name).kind for kernel in trace.kernels)
    if "product" in tf32_kinds:
        return "tf32" if "convolution" in tf32_kinds or "convolution" not in ran else "tf32-matmul"
    return "tf32-cudnn" if "convolution" in tf32_kinds else "fp32"
