"""What stands out in a trace, in sentences: where time went that another way of running would save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tclint.core.text import listed
from tclint.core.units import percent_text, plural, time_text
from tclint.profile.summary import LAUNCH_BOUND_PERCENT, PAUSE_US, Summary
from tclint.profile.trace import Trace
from tclint.profile.written_attention import WrittenAttention, written_attentions

LEAST_PERCENT = 3.0
"""Of the kernel time (of the window, for what the GPU waits for): less is not worth a sentence."""
_MOST_SIZES = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """One sentence with its measured time."""

    text: str
    time_us: float
    percent: float
    """Of the kernel time, or of the window where the text says so."""
    rules: tuple[str, ...] = ()
    """tclint's rules on the same: 'tclint explain ARC005'."""


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
    yield Observation(
        f"{plural(len(attentions), 'attention')} written out as product, softmax and product{where}: "
        f"{listed(sizes, _MOST_SIZES)}. F.scaled_dot_product_attention does the same in one kernel.",
        time_us,
        summary.percent(time_us),
        ("ARC005", "DIM009"),
    )


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
        yield Observation(
            f"Matrix work on CUDA cores that could run on Tensor Cores: {why}{which}.{advice}",
            time_us,
            summary.percent(time_us),
            rules,
        )


def _misaligned(summary: Summary) -> Iterator[Observation]:
    rows = [row for row in summary.operators if row.use == "misaligned"]
    time_us = sum(share.time_us for (use, _), share in summary.reasons.items() if use == "misaligned")
    if not time_us:
        return
    reasons = dict.fromkeys(row.reason for row in rows if ":" in row.reason)
    dims = dict.fromkeys(dim for reason in reasons for dim in reason.partition(": ")[2].split(", "))
    multiple = next(reason for use, reason in summary.reasons if use == "misaligned").partition(":")[0]
    which = f": {listed(list(dims), _MOST_SIZES + 2)}" if dims else " (the trace has no sizes for them)"
    yield Observation(
        f"Tensor Cores run slow kernels for {multiple}{which}. Padding them, and what is coupled to them, "
        "gives aligned kernels.",
        time_us,
        summary.percent(time_us),
        ("DIM001", "DIM002", "DIM003", "DIM009"),
    )


def _older(summary: Summary) -> Iterator[Observation]:
    share = summary.by_use.get("older")
    if share is None:
        return
    rows = [row for row in summary.operators if row.use == "older"]
    sizes = [f"{row.name} {row.sizes}" for row in rows]
    yield Observation(
        "Tensor Core kernels with instructions of an older generation than this GPU's, chosen by the "
        f"library: {listed(sizes, _MOST_SIZES)}.",
        share.time_us,
        summary.percent(share.time_us),
    )


def _conversions(summary: Summary) -> Iterator[Observation]:
    conversions = summary.conversions
    yield Observation(
        "Copies that only change the layout in memory (contiguous(), and cuDNN between NCHW and NHWC).",
        conversions.layout_us,
        summary.percent(conversions.layout_us),
        ("FMT001", "FMT006"),
    )
    yield Observation(
        "Copies that only change the dtype.", conversions.dtype_us, summary.percent(conversions.dtype_us)
    )


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
    pause_percent = 100.0 * summary.pause_us / summary.window_us if summary.window_us else 0.0
    names = [f"{name} ({time_text(share.time_us)})" for name, share in summary.pauses.items() if name]
    yield Observation(
        f"The GPU waited for the host in {plural(sum(p.count for p in summary.pauses.values()), 'pause')} of "
        f"more than {time_text(PAUSE_US)}, {percent_text(pause_percent)} of the window"
        + (f", most of it during {listed(names, _MOST_SIZES)}." if names else "."),
        summary.pause_us,
        pause_percent,
        ("RUN006",) if "DataLoader" in next(iter(summary.pauses), "") else ("RUN014",),
    )
    exposed_percent = (
        100.0 * summary.exposed_communication_us / summary.window_us if summary.window_us else 0.0
    )
    yield Observation(
        f"Communication with nothing beside it for {percent_text(exposed_percent)} of the window.",
        summary.exposed_communication_us,
        exposed_percent,
    )
