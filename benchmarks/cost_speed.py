"""How fast tclint prices: many products at once, and one long training graph on many GPUs.

    python benchmarks/cost_speed.py

CPU time of this process (user and system), the least of several runs, so that other programs disturb little.
Nothing is traced, no GPU is needed. The goals: 10,000 estimates in under 1 s; a training graph of 5,000
operators on 13 GPUs in under 2 s.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from tclint.cost import estimate as estimates
from tclint.cost.gpu import all_gpus, load_gpu
from tclint.cost.kernels import pricing
from tclint.cost.scenario import Scenario
from tclint.graph.lowering.work import Gemm
from tclint.graph.ops import Graph, Op, Parameter, TensorSpec
from tclint.graph.ops.spec import contiguous_strides

PRODUCTS = 10_000
OPS = 5_000
GPUS = 13
RUNS = 3


def forget() -> None:
    """Nothing priced or lowered before may help."""
    pricing._PRICES.clear()
    estimates._STEPS.clear()


def cpu_seconds(run: Callable[[], object], runs: int) -> float:
    """Least CPU time of several runs, each from nothing."""
    times = []
    for _ in range(runs):
        forget()
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


def different_products(count: int) -> list[Gemm]:
    """Linear layers' products, no two alike."""
    sizes = random.Random(0)
    found: set[Gemm] = set()
    while len(found) < count:
        m, n, k = (sizes.randrange(16, 16_384) for _ in range(3))
        found.add(Gemm(m, n, k, "float16", b_contiguous="k"))
    return list(found)


def training_graph(ops: int) -> Graph:
    """Linear layer, GELU, layer norm, dropout and residual sum, over and over in changing widths."""
    made: list[Op] = []
    parameters: list[Parameter] = []

    def op(
        name: str, kind: str, inputs: dict[str, TensorSpec], *shape: int, **attributes: object
    ) -> TensorSpec:
        out = TensorSpec(shape, "float32", contiguous_strides(shape), producer=len(made))
        made.append(
            Op(len(made), name, kind, tuple(inputs.values()), (out,), tuple(inputs), attributes=attributes)  # type: ignore[arg-type]
        )
        return out

    def parameter(name: str, *shape: int) -> TensorSpec:
        parameters.append(Parameter(name, shape, "float32"))
        return TensorSpec(shape, "float32", contiguous_strides(shape), parameter=name)

    rows = 4096
    x = TensorSpec((rows, 512), "float32", contiguous_strides((rows, 512)), input_name="x")
    first = x
    for layer in range(ops // 5):
        width = 512 + 8 * (layer % 400)
        weight = parameter(f"{layer}.weight", width, x.shape[-1])
        hidden = op("linear", "linear", {"input": x, "weight": weight}, rows, width)
        active = op("gelu", "elementwise", {"self": hidden}, rows, width)
        normed = op(
            "layer_norm", "norm", {"input": active, "weight": parameter(f"{layer}.norm", width)}, rows, width
        )
        dropped = op("dropout", "elementwise", {"input": normed}, rows, width, p=0.1, train=True)
        x = op("add", "elementwise", {"self": dropped, "other": hidden}, rows, width)
    return Graph(tuple(made), tuple(parameters), (first,), (x,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args().runs
    products = different_products(PRODUCTS)
    gpu = load_gpu("a100")
    seconds = cpu_seconds(lambda: pricing.price_works(products, gpu, "fp16"), runs)
    print(f"{PRODUCTS:,} different products on one GPU: {seconds:.2f} s")
    graph = training_graph(OPS)
    gpus = all_gpus()[:GPUS]
    for label, compiled in (("eager", False), ("compiled", True)):

        def price(compiled: bool = compiled) -> None:
            for each in gpus:
                estimates.estimate(graph, Scenario(each.id, "fp16", compiled=compiled)).step_time_us  # noqa: B018

        seconds = cpu_seconds(price, runs)
        kernels = len(estimates.estimate(graph, Scenario(gpus[0].id, "fp16", compiled=compiled)).kernels)
        print(
            f"a training graph of {len(graph.ops):,} operators, {kernels:,} kernels, on {len(gpus)} GPUs, "
            f"{label}: {seconds:.2f} s"
        )


if __name__ == "__main__":
    main()
