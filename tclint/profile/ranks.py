"""The ranks of one run beside each other: tables, and which is the slowest."""

from __future__ import annotations

from collections.abc import Sequence

from tclint.core.errors import UsageError
from tclint.core.text import listed
from tclint.core.units import percent_text, time_text
from tclint.profile.beside import Beside
from tclint.profile.profile import RankProfile
from tclint.profile.summary import Summary

HEADER = ("rank", "window", "kernels", "on TC", "communication", "idle", "file")
BESIDE_HEADER = ("rank", "matched", "measured", "predicted", "error")


def slowest_first(profiles: Sequence[RankProfile]) -> list[RankProfile]:
    """By kernel time: ranks that wait for each other differ in communication, not in their window."""
    return sorted(profiles, key=lambda one: -one.summary.kernel_time_us)


def rows(profiles: Sequence[RankProfile]) -> list[tuple[str, ...]]:
    """Cells under HEADER."""
    return [
        (
            "-" if summary.rank is None else str(summary.rank),
            time_text(summary.window_us),
            time_text(summary.kernel_time_us),
            percent_text(summary.tensor_core_percent),
            time_text(summary.communication_us),
            percent_text(summary.idle_percent),
            summary.path,
        )
        for summary in (one.summary for one in profiles)
    ]


def spread(profiles: Sequence[RankProfile]) -> str:
    """The slowest and the fastest rank, in one sentence."""
    ordered = [one.summary for one in slowest_first(profiles)]
    slow, fast = ordered[0], ordered[-1]
    less = 100.0 * (1.0 - fast.kernel_time_us / slow.kernel_time_us) if slow.kernel_time_us else 0.0
    text = (
        f"slowest: {name(slow)}, kernels {time_text(slow.kernel_time_us)}; fastest: {name(fast)}, "
        f"{time_text(fast.kernel_time_us)} ({percent_text(less)} less)"
    )
    if fast.communication_us > slow.communication_us:
        waits = time_text(fast.communication_us - slow.communication_us)
        text += f", which spends {waits} more in communication, where it waits for the others"
    return text


def name(summary: Summary) -> str:
    """'rank 3'; the file where the trace has no rank."""
    return summary.path if summary.rank is None else f"rank {summary.rank}"


def beside_rows(besides: Sequence[Beside]) -> list[tuple[str, ...]]:
    """Cells under BESIDE_HEADER, of the matched ops of one step."""
    return [
        (
            name(one.profile.summary),
            percent_text(one.alignment.matched_percent),
            time_text(one.alignment.matched_us),
            time_text(one.predicted_us),
            f"{one.error_percent:+.0f} %" if one.alignment.matched_us else "",
        )
        for one in besides
    ]


def check_same_gpu(profiles: Sequence[RankProfile]) -> None:
    """Raises UsageError where ranks ran on different GPUs: one prediction cannot stand beside them."""
    gpus = list(dict.fromkeys(one.summary.gpu for one in profiles))
    if len(gpus) > 1:
        raise UsageError(
            f"The traces are of different GPUs ({listed(gpus, 4)}); give the traces of one GPU, or one trace."
        )
