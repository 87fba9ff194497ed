"""Ops written by hand, and what torch really multiplies in a backward pass."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tclint.graph.lowering.work import Convolution, Gemm, Kernel, Traffic
from tclint.graph.ops import Graph, Op, Parameter, TensorSpec
from tclint.graph.ops.spec import contiguous_strides


def spec(
    *shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None, **origin: Any
) -> TensorSpec:
    """A tensor, row-major unless strides are given."""
    return TensorSpec(shape, dtype, contiguous_strides(shape) if strides is None else strides, **origin)


def make_op(name: str, kind: str, inputs: dict[str, TensorSpec], *outputs: TensorSpec, **fields: Any) -> Op:
    """An op at index 0 unless said otherwise."""
    index = fields.pop("index", 0)
    attributes = fields.pop("attributes", {})
    return Op(
        index, name, kind, tuple(inputs.values()), outputs, tuple(inputs), attributes=attributes, **fields
    )


def make_graph(*ops: Op, parameters: tuple[Parameter, ...] = ()) -> Graph:
    """A graph whose outputs are those of the last op."""
    last = ops[-1]
    outputs = tuple(
        TensorSpec(out.shape, out.dtype, out.strides, producer=last.index, output_index=position)
        for position, out in enumerate(last.outputs)
    )
    return Graph(ops, parameters, outputs=outputs)


Products = Counter[tuple[Any, ...]]


def product_key(batch: int, m: int, n: int, k: int) -> tuple[Any, ...]:
    """Equal for a product and for the transposed one, which computes the same."""
    return ("gemm", batch, min(m, n), max(m, n), k)


def backward_products(kernels: list[Kernel]) -> Products:
    """The backward's matrix products and convolutions; of the latter what torch records of them: the kind
    of gradient, batch, channels, input size and groups."""
    found: Products = Counter()
    for kernel in kernels:
        work = kernel.work
        if kernel.phase != "backward":
            continue
        if isinstance(work, Gemm):
            found[product_key(work.batch, work.m, work.n, work.k)] += work.repeats
        elif isinstance(work, Convolution):
            channels = (work.in_channels, work.out_channels)
            found[(kernel.role, work.batch, *channels, work.input_size, work.groups)] += 1
    return found


def recorded_products(model: Any, args: tuple[Any, ...]) -> Products:
    """What `backward_products` should give, recorded from a real backward pass on the CPU."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: Products = Counter()

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            if name in ("mm", "addmm"):
                a, b = args[-2:]
                found[product_key(1, a.shape[0], b.shape[1], a.shape[1])] += 1
            elif name == "mv":
                found[product_key(1, args[0].shape[0], 1, args[0].shape[1])] += 1
            elif name in ("bmm", "baddbmm"):
                a, b = args[-2:]
                found[product_key(a.shape[0], a.shape[1], b.shape[2], a.shape[2])] += 1
            elif name == "convolution_backward":
                y, x, w, *_, transposed, _, groups, mask = args
                mirrored = tuple((y if transposed else x).shape)
                for wanted, role in zip(mask, ("dgrad", "wgrad"), strict=False):
                    if wanted:
                        channels = (w.shape[1] * groups, w.shape[0])
                        found[(role, mirrored[0], *channels, mirrored[2:], groups)] += 1
            return func(*args, **(kwargs or {}))

    outputs = model(*args)
    outputs = (outputs,) if torch.is_tensor(outputs) else outputs
    trained = [tensor for tensor in outputs if torch.is_tensor(tensor) and tensor.requires_grad]
    # Random gradients, because the expanded one of a sum has a layout that no real loss gives.
    gradients = [torch.rand_like(tensor) for tensor in trained]
    with Recorder():
        torch.autograd.backward(trained, gradients)
    return found


def traffic_of(kernels: list[Kernel], phase: str = "forward") -> tuple[int, int]:
    """Bytes (read, written) by the memory-bound kernels of one phase."""
    works = [kernel.work for kernel in kernels if kernel.phase == phase and isinstance(kernel.work, Traffic)]
    return sum(work.bytes_read for work in works), sum(work.bytes_written for work in works)
