#!/usr/bin/env python
"""Compare tclint's training graph with recorded backward passes, product by product.

    python benchmarks/backward_truth.py --library custom timm transformers [--variants] [--out FILE.csv]

Every model is traced, and its backward pass derived from the trace. The same model is then run forward and
backward under autograd, on meta tensors where it can (on the CPU where it looks at values), and every matrix
product, convolution and fused attention of its backward pass is written down, with the storages that autograd
kept from the forward pass. The loss is the sum of all outputs. With `--variants` every third model runs again
with the first half of its parameters frozen, with all but its one-dimensional parameters frozen, and with its
own blocks checkpointed, where it offers that.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # tests import this module, and are no benchmark
    os.environ.setdefault("PYTORCH_JIT", "0")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from trace_truth import (  # noqa: E402
    MAX_WEIGHT_BYTES,
    append_row,
    cases_of,
    options,
    read_rows,
    without_random_skips,
)
from zoo_case import Case, as_call, note  # noqa: E402
from zoo_child import run_in_child  # noqa: E402

COLUMNS = (
    "name",
    "library",
    "variant",
    "result",
    "device",
    "assumptions",
    "traced",
    "real",
    "identical",
    "identical_layouts",
    "traced_flops",
    "real_flops",
    "saved_estimate_bytes",
    "saved_bytes",
    "unknown_savers",
    "differences",
)
VARIANTS = ("frozen first half", "frozen matrices", "checkpointed")
Key = tuple[Any, ...]


def report(say: Callable[..., None], case: Case, variant: str) -> None:
    """In the child: trace, run for real, compare."""
    import torch

    from tclint.cost.memory.saved_tensors import saved_tensors
    from tclint.tracing import trace_callable

    build = _varied(without_random_skips(case.build), variant)
    try:
        case.prepare()
        graph = trace_callable(build)
    except _NotOffered:
        say(result=f"not offered: {variant}")
        return
    except BaseException as error:
        say(result=f"not traced: {type(error).__name__}: {str(error)[:150]}")
        return
    say(assumptions=len(graph.assumptions))
    try:
        real, device = _real(build, sum(parameter.bytes for parameter in graph.parameters))
    except BaseException as error:
        if os.environ.get("ZOO_VERBOSE"):
            import traceback

            traceback.print_exc()
        say(result=f"does not run: {type(error).__name__}: {str(error)[:150]}")
        return
    traced, sources, flops = traced_products(graph)
    saved = saved_tensors(graph)
    sizes = _by_sizes(traced), _by_sizes(real.products)
    identical = sum((sizes[0] & sizes[1]).values())
    say(
        device=device,
        traced=sum(traced.values()),
        real=sum(real.products.values()),
        identical=identical,
        identical_layouts=sum((traced & real.products).values()),
        traced_flops=flops,
        real_flops=real.flops,
        saved_estimate_bytes=saved.bytes,
        saved_bytes=real.saved_bytes,
        unknown_savers=" ".join(f"{name}:{count}" for name, count in saved.unknown.items()),
        differences="; ".join(_differences(sizes, sources, real.nodes)),
        result="compared",
    )
    del torch


def traced_products(graph: Any) -> tuple[Counter[tuple[Key, Key]], dict[Key, str], int]:
    """The products of the derived backward pass, where each size comes from, and their FLOPs."""
    from tclint.graph.lowering.step import lower
    from tclint.graph.lowering.work import Traffic

    kernels, _ = lower(graph, "train")
    products: Counter[tuple[Key, Key]] = Counter()
    sources: dict[Key, str] = {}
    flops = 0
    for kernel in kernels:
        if kernel.phase != "backward" or isinstance(kernel.work, Traffic):
            continue
        sizes, layout, times = _key(kernel.role, kernel.work)
        products[sizes, layout] += times
        sources.setdefault(sizes, f"{kernel.role} of {graph.ops[kernel.op_index].name}")
        flops += kernel.flops
    return products, sources, flops


def _key(role: str, work: Any) -> tuple[Key, Key, int]:
    """The same key that the recorder makes of a call; and how often it runs."""
    from tclint.graph.lowering.work import Attention, Gemm

    if isinstance(work, Gemm):
        layout = (
            "*" if 1 in (work.m, work.k) else work.a_contiguous,
            "*" if 1 in (work.k, work.n) else work.b_contiguous,
        )
        m, n = work.m, work.n
        if work.c_contiguous == "m":
            # torch asks for the transposed product, whose rows lie as this one's columns.
            (m, n), flipped = (n, m), {"m": "n", "n": "m"}
            layout = (flipped.get(layout[1], layout[1]), flipped.get(layout[0], layout[0]))
        return ("gemm", work.batch, m, n, work.k), layout, work.repeats
    if isinstance(work, Attention):
        role = "backward" if work.is_backward else "forward"
        lengths = (work.query_length, work.key_length, work.head_dim, work.value_head_dim)
        return ("attention", role, work.batch, work.heads, work.kv_heads, *lengths), (), 1
    key = (
        "conv",
        role if role in ("dgrad", "wgrad") else "forward",
        work.batch,
        work.in_channels,
        work.out_channels,
        work.input_size,
        work.output_size,
        work.kernel_size,
        work.stride,
        work.padding,
        work.dilation,
        work.groups,
    )
    return key, (), 1


def _by_sizes(products: Counter[tuple[Key, Key]]) -> Counter[Key]:
    sizes: Counter[Key] = Counter()
    for (key, _), count in products.items():
        sizes[key] += count
    return sizes


def _differences(
    sizes: tuple[Counter[Key], Counter[Key]], sources: dict[Key, str], nodes: dict[Key, str]
) -> Iterator[str]:
    for key, count in sorted((sizes[0] - sizes[1]).items(), key=str):
        yield f"{count} x only derived: {_text(key)} ({sources[key]})"
    for key, count in sorted((sizes[1] - sizes[0]).items(), key=str):
        yield f"{count} x only real: {_text(key)} ({nodes[key]})"


def _text(key: Key) -> str:
    return " ".join("x".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in key)


class _NotOffered(BaseException):
    """The model has no such variant; not an Exception, which the tracer would explain as the user's."""


def _varied(build: Callable[[], Any], variant: str) -> Callable[[], Any]:
    def make() -> Any:
        model, inputs = build()
        if variant == "checkpointed":
            offered = getattr(model, "gradient_checkpointing_enable", None) or getattr(
                model, "set_grad_checkpointing", None
            )
            if offered is None:
                raise _NotOffered
            try:
                offered()
            except Exception:
                raise _NotOffered from None
            model.train()
        elif variant:
            parameters = list(model.parameters())
            for position, parameter in enumerate(parameters):
                if variant == "frozen first half":
                    parameter.requires_grad_(position >= len(parameters) // 2 and parameter.requires_grad)
                elif parameter.dim() != 1:
                    parameter.requires_grad_(False)
        return model, inputs

    return make


def _real(build: Callable[[], Any], weight_bytes: int) -> tuple[Any, str]:
    """The recorded backward pass and the device that it ran on."""
    import torch
    from backward_recorder import run_backward

    from tclint.tracing.patches.stored_weights import without_initialisation

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        try:
            with torch.device("meta"), without_initialisation():
                model, inputs = build()
                args, kwargs = as_call(inputs, lambda tensor: tensor.detach().to("meta"))
                model = getattr(model, "_orig_mod", model)
                return run_backward(model, args, kwargs), "meta"
        except Exception:
            if weight_bytes > MAX_WEIGHT_BYTES:
                raise
        torch.manual_seed(0)
        model, inputs = build()
        args, kwargs = as_call(inputs, _real_input)
        with torch.backends.mkldnn.flags(enabled=False):  # its fused layers are not a GPU's
            return run_backward(getattr(model, "_orig_mod", model), args, kwargs), "cpu"
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _real_input(tensor: Any) -> Any:
    import torch

    if not tensor.is_meta:
        return tensor.detach().clone()
    real = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return real.normal_() if tensor.is_floating_point() else real.fill_(1)


def main() -> int:
    parser = options(__doc__, 180.0)
    parser.add_argument("--variants", action="store_true", help="also frozen and checkpointed versions")
    parser.add_argument(
        "--every-variant", type=int, default=3, metavar="N", help="variants of every Nth model"
    )
    arguments = parser.parse_args()
    importlib.import_module("tclint.tracing.worker.objects")
    importlib.import_module("tclint.cost.memory.saved_tensors")
    out = Path(arguments.out) if arguments.out else None
    rows = read_rows(out)
    done = {(row["library"], row["name"], row["variant"]) for row in rows}
    for library in arguments.library:
        chosen = list(cases_of(library))[:: arguments.every][: arguments.limit or None]
        for position, case in enumerate(chosen):
            if arguments.only and case.name not in arguments.only:
                continue
            more = arguments.variants and position % arguments.every_variant == 0
            for variant in ("", *(VARIANTS if more else ())):
                if (library, case.name, variant) in done:
                    continue
                said, ending = run_in_child(
                    lambda say, case=case, variant=variant: report(say, case, variant), arguments.timeout
                )
                row = {"name": case.name, "library": library, "variant": variant, **said}
                row.setdefault("result", ending or "no result")
                rows.append(row)
                note(
                    f"{case.name} {variant}: {row['result']} {row.get('identical')}/{row.get('real')} "
                    f"saved {row.get('saved_estimate_bytes', '')}/{row.get('saved_bytes', '')} "
                    f"{row.get('differences', '')[:300]}"
                )
                if out is not None:
                    append_row(out, row, COLUMNS)
    from backward_table import summarize

    print("\n".join(summarize(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
