"""Traces as torch.profiler writes them, with kernels whose times the tests make up."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

A100 = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0}
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}
V100 = {"id": 0, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "computeMinor": 0}

FP16_GEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
MISALIGNED_GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x5_nn_align1>"
SGEMM = "ampere_sgemm_128x64_nn"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 11>(c10::Half*)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::Iter&)>(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"

Dims = Sequence[Sequence[int] | Sequence[Sequence[int]]]


class TraceWriter:
    """Operators with their kernels, one after the other, 100 us of host time each unless told otherwise."""

    def __init__(self, device: dict[str, Any] | None = None) -> None:
        self.device = A100 if device is None else device
        self.events: list[dict[str, Any]] = []
        self.host_us = 1000.0
        self.gpu_us = 1000.0
        self.header: dict[str, Any] = {}
        self._correlation = 0

    def span(
        self,
        name: str,
        start_us: float,
        time_us: float,
        category: str = "cpu_op",
        tid: int = 1,
        **arguments: Any,
    ) -> None:
        """A call on the host."""
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start_us, "dur": time_us}
            | {"args": arguments}
        )

    def launch(
        self,
        kernel: str,
        at_us: float,
        start_us: float,
        time_us: float,
        *,
        tid: int = 1,
        stream: int = 7,
        category: str = "kernel",
        **arguments: Any,
    ) -> None:
        """A call of the runtime and what it ran on the GPU."""
        self._correlation += 1
        self.span("cudaLaunchKernel", at_us, 5, "cuda_runtime", tid, correlation=self._correlation)
        self.activity(kernel, start_us, time_us, stream, category, correlation=self._correlation, **arguments)

    def launch_from(
        self,
        operator: dict[str, Any],
        recorded: Sequence[dict[str, Any]],
        kernel: str,
        start_us: float,
        time_us: float,
    ) -> None:
        """A kernel that an operator of a trace of torch's own launches behind all that it calls.

        Which share of its time that is depends on the machine: the place is read from the trace.
        """
        start, end_us = operator["ts"], operator["ts"] + operator["dur"]
        called = [
            event["ts"] + event["dur"]
            for event in recorded
            if event.get("ph") == "X" and event["tid"] == operator["tid"] and start < event["ts"] < end_us
        ]
        self.launch(kernel, (max(called, default=start) + end_us) / 2, start_us, time_us)
        self.events[-2].update(pid=operator["pid"], tid=operator["tid"])

    def activity(
        self,
        name: str,
        start_us: float,
        time_us: float,
        stream: int = 7,
        category: str = "kernel",
        **arguments: Any,
    ) -> None:
        """Something that ran on the GPU."""
        placed = {"pid": 0, "tid": stream, "ts": start_us, "dur": time_us}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, **placed}
            | {"args": {"device": 0, "stream": stream, **arguments}}
        )

    def op(
        self,
        name: str,
        kernels: Sequence[tuple[str, float]] = (),
        dims: Dims = (),
        dtype: str = "c10::Half",
        host_us: float = 100.0,
        **arguments: Any,
    ) -> float:
        """An operator that launches kernels (name, microseconds), one behind the other; when it began."""
        began = self.host_us
        types = [dtype if size else "" for size in dims]
        recorded = {"Input Dims": [list(size) for size in dims], "Input type": types}
        self.span(name, began, host_us - 1, **({**recorded, **arguments} if dims else arguments))
        for index, (kernel, time_us) in enumerate(kernels):
            at_us = began + 10 + index
            start_us = max(self.gpu_us, at_us + 5)
            self.launch(kernel, at_us, start_us, time_us)
            self.gpu_us = start_us + time_us
        self.host_us += host_us
        return began

    def document(self) -> dict[str, Any]:
        return {
            "schemaVersion": 1,
            "deviceProperties": [self.device],
            **self.header,
            "traceEvents": self.events,
        }

    def write(self, path: Path) -> str:
        """The file's path; packed where it ends in .gz."""
        text = json.dumps(self.document(), indent=1)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text, encoding="utf-8")
        return str(path)
