"""What stands out in a trace, in sentences: where time went that another way of running would save."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tclint.core.text import listed
from tclint.core.units import percent_text, plural, time_text
from tclint.profile.kernel_names import kernel_name
from tclint.profile.summary import LAUNCH_BOUND_PERCENT, PAUSE_US, Summary
from tclint.profile.trace import Kernel, Operator, Trace
from tclint.profile.works import ProductSizes, product_sizes, tensor_shapes

_BETWEEN = 12
"""Kernels between the first product and the softmax, or the softmax and the second."""
_INSIDE = frozenset({"elementwise", "copy", "layout", "index", "fill", "random", "helper", "fused", "other"})
"""Kinds of kernels that scale, mask, cast, drop and copy scores; a loss or a softmax more ends it."""
_NO_WEIGHTS = re.compile(r"(?i)log_?soft_?max|backward|grad|_bwd")
"""In the name of a softmax: a loss takes its logarithm, or it is the gradient."""


@dataclass(frozen=True, slots=True)
class WrittenAttention:
    """One call, with the kernels that a fused attention would replace."""

    scores: ProductSizes
    """The sizes of Q K^T: M queries, N keys, K columns of a head; batch counts heads."""
    operator: Operator
    """The operator of the first product."""
    kernels: tuple[Kernel, ...]
    """From what makes the operands of the first product contiguous to the second product."""
    backward: tuple[Kernel, ...] = ()
    """Those of its gradients, where the trace ties them to it."""

    @property
    def time_us(self) -> float:
        return sum(kernel.time_us for kernel in (*self.kernels, *self.backward))


def written_attentions(kernels: Sequence[Kernel]) -> list[WrittenAttention]:
    """Every attention written out in the forward pass of a trace.

    Args:
        kernels: in the order in which they ran.
    """
    launched = sorted(
        (kernel for kernel in kernels if kernel.operator is not None and kernel.launch_us is not None),
        key=lambda kernel: kernel.launch_us or 0.0,
    )
    found = list(_forward(launched))
    by_origin: dict[int, list[Kernel]] = {}
    for kernel in launched:
        assert kernel.operator is not None
        if kernel.operator.is_backward:
            by_origin.setdefault(id(kernel.operator.origin), []).append(kernel)
    attentions = []
    for attention in found:
        operators = (kernel.operator for kernel in attention.kernels if kernel.operator is not None)
        own = dict.fromkeys(id(one) for operator in operators for one in operator.chain())
        backward = tuple(kernel for origin in own for kernel in by_origin.get(origin, ()))
        attentions.append(replace(attention, backward=backward))
    return attentions


def _forward(launched: Sequence[Kernel]) -> Iterator[WrittenAttention]:
    at = 0
    while at < len(launched):
        first = launched[at].operator
        scores = product_sizes(first)
        end = None
        if scores is not None and first is not None and _is_of_activations(launched[at]):
            end = _second_product(launched, at, scores)
        if end is None or scores is None or first is None:
            at += 1
            continue
        begin = at
        # Operands are made contiguous right before, inside the same call of matmul.
        outer = next((one for one in reversed(list(first.chain())) if one.name == "aten::matmul"), None)
        while begin > 0 and outer is not None and _is_inside(launched[begin - 1], outer):
            begin -= 1
        yield WrittenAttention(scores, first, tuple(launched[begin : end + 1]))
        at = end + 1


def _second_product(launched: Sequence[Kernel], at: int, scores: ProductSizes) -> int | None:
    """Where the product with the softmax's result ends; None where there is none."""
    softmax = None
    for index in range(at + 1, min(at + 2 * _BETWEEN, len(launched))):
        kernel = launched[index]
        kind = kernel_name(kernel.name).kind
        if kind == "softmax" and softmax is None:
            if not _is_over(kernel.operator, scores):
                return None
            softmax = index
        elif kind == "product" and kernel.operator is not launched[at].operator:
            sizes = product_sizes(kernel.operator)
            fits = sizes is not None and (sizes.batch, sizes.m, sizes.k) == (scores.batch, scores.m, scores.n)
            if softmax is None or not fits or not _is_of_activations(kernel):
                return None
            end = index
            while end + 1 < len(launched) and launched[end + 1].operator is kernel.operator:
                end += 1
            return end
        elif kind not in _INSIDE and kernel.operator is not launched[at].operator:
            return None
    return None


def _is_of_activations(kernel: Kernel) -> bool:
    """Whether it is a product of the forward pass, and not that of a layer, which has a weight or a bias."""
    operator = kernel.operator
    if operator is None or operator.is_backward or kernel_name(kernel.name).kind != "product":
        return False
    return not any(
        one.name in ("aten::linear", "aten::addmm", "aten::_addmm_activation") for one in operator.chain()
    )


def _is_over(softmax: Operator | None, scores: ProductSizes) -> bool:
    if softmax is None or any(_NO_WEIGHTS.search(one.name) for one in softmax.chain()):
        return False
    return any(shape[-2:] in ((scores.m, scores.n), (1, scores.n)) for shape in tensor_shapes(softmax)[:1])


def _is_inside(kernel: Kernel, operator: Operator) -> bool:
    return kernel.operator is not None and any(one is operator for one in kernel.operator.chain())


LEAST_PERCENT = 3.0
"""The least share of the kernel time (of the window, where the GPU waits) that is worth a sentence."""
_MOST_SIZES = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """One sentence with its measured time."""

    text: str
    time_us: float
    percent: float
    """The share of the kernel time, or of the window where the text says so."""
    rules: tuple[str, ...] = ()
    """tclint's rules on the same: 'tclint explain ARC005'."""

    @classmethod
    def of_kernels(cls, summary: Summary, text: str, time_us: float, *rules: str) -> Observation:
        """With the share of the kernel time."""
        return cls(text, time_us, summary.percent(time_us), rules)


def observations(trace: Trace, summary: Summary) -> list[Observation]:
    """The longest first."""
    found = [
        *_attention(written_attentions(trace.kernels), summary),
        *_off_tensor_cores(summary),
        *_misaligned(summary),
        *_older(summary),
        *_conversions(summary),
        *_waiting(summary),
    ]
    return sorted((one for one in found if one.percent >= LEAST_PERCENT), key=lambda one: -one.time_us)


def _attention(attentions: Sequence[WrittenAttention], summary: Summary) -> Iterator[Observation]:
    if not attentions:
        return
    time_us = sum(attention.time_us for attention in attentions)
    by_sizes: dict[tuple[int, int, int], float] = defaultdict(float)
    lines = dict.fromkeys(one.operator.line for one in attentions if one.operator.line)
    for attention in attentions:
        scores = attention.scores
        by_sizes[scores.m, scores.n, scores.k] += attention.time_us
    sizes = [
        f"{queries} x {keys} tokens with heads of {head} ({time_text(took_us)})"
        for (queries, keys, head), took_us in sorted(by_sizes.items(), key=lambda item: -item[1])
    ]
    where = f" in {listed(list(lines), 2)}" if lines else ""
    text = (
        f"{plural(len(attentions), 'attention')} written out as product, softmax and product{where}: "
        f"{listed(sizes, _MOST_SIZES)}. F.scaled_dot_product_attention does the same in one kernel."
    )
    yield Observation.of_kernels(summary, text, time_us, "ARC005", "DIM009")


def _off_tensor_cores(summary: Summary) -> Iterator[Observation]:
    times: dict[str, float] = defaultdict(float)
    sizes: dict[str, dict[str, None]] = defaultdict(dict)
    for (use, reason), share in summary.reasons.items():
        if use == "possible":
            why, _, dims = reason.partition(": ")
            times[why] += share.time_us
            sizes[why].update(dict.fromkeys(dims.split(", ") if dims else ()))
    for why, time_us in times.items():
        advice = ""
        rules: tuple[str, ...] = ()
        if why == "float32 without TF32":
            advice = (
                " torch.set_float32_matmul_precision('high') and torch.backends.cudnn.allow_tf32 = True put "
                "it on them in TF32, autocast in 16 bits."
            )
            rules = ("PRC001", "PRC002", "AMP016")
        elif why.startswith("float32, for which"):
            rules = ("AMP016",)
        which = f": {listed(list(sizes[why]), _MOST_SIZES + 2)}" if sizes[why] else ""
        text = f"Matrix work on CUDA cores that could run on Tensor Cores: {why}{which}.{advice}"
        yield Observation.of_kernels(summary, text, time_us, *rules)


def _misaligned(summary: Summary) -> Iterator[Observation]:
    rows = [row for row in summary.operators if row.use == "misaligned"]
    time_us = sum(share.time_us for (use, _), share in summary.reasons.items() if use == "misaligned")
    if not time_us:
        return
    reasons = dict.fromkeys(row.reason for row in rows if ":" in row.reason)
    dims = dict.fromkeys(dim for reason in reasons for dim in reason.partition(": ")[2].split(", "))
    multiple = next(reason for use, reason in summary.reasons if use == "misaligned").partition(":")[0]
    which = f": {listed(list(dims), _MOST_SIZES + 2)}" if dims else " (the trace has no sizes for them)"
    text = (
        f"Tensor Cores run slow kernels for {multiple}{which}. Padding them, and what is coupled to them, "
        "gives aligned kernels."
    )
    yield Observation.of_kernels(summary, text, time_us, "DIM001", "DIM002", "DIM003", "DIM009")


def _older(summary: Summary) -> Iterator[Observation]:
    share = summary.by_use.get("older")
    if share is None:
        return
    sizes = [f"{row.name} {row.sizes}" for row in summary.operators if row.use == "older"]
    text = (
        "Tensor Core kernels with instructions of an older generation than this GPU's, chosen by the "
        f"library: {listed(sizes, _MOST_SIZES)}."
    )
    yield Observation.of_kernels(summary, text, share.time_us)


def _conversions(summary: Summary) -> Iterator[Observation]:
    conversions = summary.conversions
    text = "Copies that only change the layout in memory (contiguous(), and cuDNN between NCHW and NHWC)."
    yield Observation.of_kernels(summary, text, conversions.layout_us, "FMT001", "FMT006")
    yield Observation.of_kernels(summary, "Copies that only change the dtype.", conversions.dtype_us)


def _waiting(summary: Summary) -> Iterator[Observation]:
    if summary.is_launch_bound:
        yield Observation(
            f"Launch-bound: for {percent_text(summary.launch_wait_percent)} of the window (more than "
            f"{LAUNCH_BOUND_PERCENT:.0f} %) the GPU was idle because the host had not launched the next "
            "kernel yet. Faster kernels will not be felt; larger batches, torch.compile or CUDA graphs will.",
            summary.launch_wait_us,
            summary.launch_wait_percent,
            ("ARC021",),
        )
    pause_percent = summary.window_percent(summary.pause_us)
    names = [f"{name} ({time_text(share.time_us)})" for name, share in summary.pauses.items() if name]
    yield Observation(
        f"The GPU waited for the host in {plural(sum(p.count for p in summary.pauses.values()), 'pause')} of "
        f"more than {time_text(PAUSE_US)}, {percent_text(pause_percent)} of the window"
        + (f", most of it during {listed(names, _MOST_SIZES)}." if names else "."),
        summary.pause_us,
        pause_percent,
        ("RUN006",) if "DataLoader" in next(iter(summary.pauses), "") else ("RUN014",),
    )
    exposed_percent = summary.window_percent(summary.exposed_communication_us)
    yield Observation(
        f"Communication with nothing beside it for {percent_text(exposed_percent)} of the window.",
        summary.exposed_communication_us,
        exposed_percent,
    )
