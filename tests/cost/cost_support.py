"""Building small graphs by hand, without torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tclint.cost.gpu import load_gpu
from tclint.cost.kernels.pricing import price_works
from tclint.cost.rows import Price
from tclint.graph.lowering.work import Convolution, Gemm, Work
from tclint.graph.ops import Graph, Op, Parameter, TensorSpec
from tclint.graph.ops.spec import contiguous_strides


def price(work: Work, gpu: str = "a100", precision: Any = "fp16", *, alone: bool = False) -> Price:
    """The price of some work, within a step or as it is where one kernel runs over and over."""
    known = load_gpu(gpu)
    found = price_works(
        [work], replace(known, id=f"{known.id} timed alone", step_slowdown={}) if alone else known, precision
    )[0]
    assert found is not None
    return found


def linear(m: int, n: int, k: int, dtype: str = "float16") -> Gemm:
    """Forward of a linear layer with k inputs and n outputs on m rows."""
    return Gemm(m, n, k, dtype, a_contiguous="k", b_contiguous="k", c_contiguous="n")


def convolution(c: int, k: int, size: int, taps: int = 3, *, batch: int = 32, **changes: Any) -> Convolution:
    fields: dict[str, Any] = {
        "batch": batch,
        "in_channels": c,
        "out_channels": k,
        "input_size": (size, size),
        "output_size": (size, size),
        "kernel_size": (taps, taps),
        "stride": (1, 1),
        "padding": (taps // 2, taps // 2),
        "dilation": (1, 1),
        "groups": 1,
        "dtype": "float16",
        "channels_last": True,
    }
    return Convolution(**(fields | changes))


class GraphBuilder:
    """Appends ops one after the other; tensors are dense, row-major float32 unless said otherwise."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.parameters: list[Parameter] = []
        self.inputs: list[TensorSpec] = []

    def input(self, *shape: int, dtype: str = "float32", name: str = "x") -> TensorSpec:
        spec = TensorSpec(shape, dtype, contiguous_strides(shape), input_name=name)
        self.inputs.append(spec)
        return spec

    def parameter(self, name: str, *shape: int, dtype: str = "float32", trainable: bool = True) -> TensorSpec:
        self.parameters.append(Parameter(name, shape, dtype, trainable=trainable))
        return TensorSpec(shape, dtype, contiguous_strides(shape), parameter=name)

    def op(
        self,
        name: str,
        kind: Any,
        inputs: dict[str, TensorSpec],
        *shape: int,
        dtype: str = "float32",
        strides: tuple[int, ...] | None = None,
        **fields: Any,
    ) -> TensorSpec:
        index = len(self.ops)
        out = TensorSpec(shape, dtype, strides or contiguous_strides(shape), producer=index)
        self.ops.append(
            Op(
                index=index,
                name=name,
                kind=kind,
                inputs=tuple(inputs.values()),
                outputs=(out,),
                input_names=tuple(inputs),
                **fields,
            )
        )
        return out

    def linear(self, x: TensorSpec, out_features: int, name: str = "fc") -> TensorSpec:
        weight = self.parameter(f"{name}.weight", out_features, x.shape[-1])
        return self.op("linear", "linear", {"input": x, "weight": weight}, *x.shape[:-1], out_features)

    def graph(self, *outputs: TensorSpec) -> Graph:
        return Graph(tuple(self.ops), tuple(self.parameters), tuple(self.inputs), outputs)
