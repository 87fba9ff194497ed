"""A profile as a document for people: what ran, what of it used Tensor Cores, and the model beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tclint.core.document import Block, Document, Figure, Heading, Lines, Table
from tclint.core.finding import Finding
from tclint.core.markup import shortened
from tclint.core.text import listed
from tclint.core.units import percent_text, plural, time_text
from tclint.cost.gpu.factors import factors_note
from tclint.profile.beside import POOR_MATCH_PERCENT, Beside
from tclint.profile.profile import RankProfile, slowest_first
from tclint.profile.roofline import roofline
from tclint.profile.summary import OperatorTime, Share, Summary
from tclint.profile.tensor_cores import TITLES

Most = tuple[int, int | None]
"""The most operators of a trace, and of a model."""
MOST: dict[str, Most] = {
    "brief": (10, 15), "text": (60, None), "markdown": (60, None), "html": (200, None)
}  # fmt: skip
"""What each format lists, and text without -v, the longest first."""
_NAME_CHARACTERS = 160
_SHOWN_REASONS = 4
_UNKNOWN_NAMES = 5
_RANKS = ("rank", "window", "kernels", "on TC", "communication", "idle", "file")
_BESIDE = ("rank", "matched", "measured", "predicted", "error")
_SHARES = ("time", "share", "kernels")


def profile_document(
    profiles: Sequence[RankProfile],
    shown: Sequence[RankProfile],
    besides: Sequence[Beside],
    most: tuple[int, int | None],
) -> Document:
    """The ranks, some of them in full, then the model that they are of.

    Args:
        profiles: of all ranks.
        shown: those in full.
        besides: the same ranks beside a model, if there is one; the first is shown in full.
        most: one of MOST.
    """
    found: list[Block] = []
    if len(profiles) > 1:
        found += [Table(_RANKS, _rank_rows(profiles), words=1), Lines([_spread(profiles)])]
    for profile in shown:
        found += _of_rank(profile, most[0])
    return [*found, *(_beside(besides, most[1]) if besides else ())]


def _rank_rows(profiles: Sequence[RankProfile]) -> list[tuple[str, ...]]:
    """Cells under _RANKS."""
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


def _spread(profiles: Sequence[RankProfile]) -> str:
    """The slowest and the fastest rank, in one sentence."""
    ordered = [one.summary for one in slowest_first(profiles)]
    slow, fast = ordered[0], ordered[-1]
    less = 100.0 * (1.0 - fast.kernel_time_us / slow.kernel_time_us) if slow.kernel_time_us else 0.0
    text = (
        f"slowest: {_name(slow)}, kernels {time_text(slow.kernel_time_us)}; fastest: {_name(fast)}, "
        f"{time_text(fast.kernel_time_us)} ({percent_text(less)} less)"
    )
    if fast.communication_us > slow.communication_us:
        waits = time_text(fast.communication_us - slow.communication_us)
        text += f", which spends {waits} more in communication, where it waits for the others"
    return text


def _name(summary: Summary) -> str:
    """'rank 3'; the file where the trace has no rank."""
    return summary.path if summary.rank is None else f"rank {summary.rank}"


def _beside_rows(besides: Sequence[Beside]) -> list[tuple[str, ...]]:
    """Cells under _BESIDE, of the matched ops of one step."""
    return [
        (
            _name(one.profile.summary),
            percent_text(one.alignment.matched_percent),
            time_text(one.alignment.matched_us),
            time_text(one.predicted_us),
            f"{one.error_percent:+.0f} %" if one.alignment.matched_us else "",
        )
        for one in besides
    ]


def _of_rank(profile: RankProfile, most: int) -> Iterator[Block]:
    summary = profile.summary
    title, *sentences = _head(summary)
    yield from (Heading(title, 1), Lines(sentences))
    yield Heading("kernel time by use of Tensor Cores")
    yield Table(("use", *_SHARES), list(_use_rows(summary)))
    yield Heading("by kind")
    yield Table(("kind", *_SHARES), [_row(summary, *kind) for kind in summary.by_kind.items()])
    if profile.observations:
        yield Heading("what stands out")
        yield Lines(
            [
                f"{time_text(one.time_us)}, {percent_text(one.percent)}: {one.text}"
                + (f" (tclint explain {', '.join(one.rules)})" if one.rules else "")
                for one in profile.observations
            ],
            "- ",
        )
    operators = summary.operators[:most]
    yield Heading(f"longest operators ({len(operators)} of {len(summary.operators)})")
    yield Table(
        ("operator", "time", "share", "calls", "Tensor Cores"),
        [
            (
                shortened(" ".join(filter(None, _named(row))), _NAME_CHARACTERS),
                time_text(row.time_us),
                percent_text(summary.percent(row.time_us)),
                str(row.calls),
            )
            for row in operators
        ],
        [_in_words(row) for row in operators],
    )
    yield Figure("roofline of measured times", lambda: roofline(profile))
    yield Lines(list(_notes(summary)), "note: ")


def _head(summary: Summary) -> Iterator[str]:
    """What ran, and what the GPU did with its time."""
    gpu = summary.gpu or "an unnamed GPU"
    steps = plural(summary.steps, "step") if summary.steps else "no steps marked"
    rank = f", rank {summary.rank}" if summary.rank is not None else ""
    yield f"{summary.path}: {gpu}{rank}, {steps}"
    bound = "launch-bound" if summary.is_launch_bound else "not launch-bound"
    yield (
        f"{time_text(summary.window_us)} from first to last kernel: {percent_text(summary.idle_percent)} "
        f"idle, {percent_text(summary.launch_wait_percent)} waiting for launches ({bound})"
    )
    parts = [f"kernels {time_text(summary.kernel_time_us)}"]
    if summary.steps > 1:
        parts[0] += f" ({time_text(summary.kernel_time_us / summary.steps)} a step)"
    if summary.communication_us:
        exposed = time_text(summary.exposed_communication_us)
        parts.append(
            f"communication {time_text(summary.communication_us)} ({exposed} with nothing beside it)"
        )
    moved = {
        "host copies": summary.transfer_us,
        "device copies": summary.device_copy_us,
        "memsets": summary.memset_us,
    }
    yield ", ".join([*parts, *(f"{name} {time_text(time_us)}" for name, time_us in moved.items() if time_us)])
    if summary.backward_us or summary.optimizer_us:
        forward_us = summary.kernel_time_us - summary.backward_us - summary.optimizer_us
        yield (
            f"forward and other {time_text(forward_us)}, backward {time_text(summary.backward_us)}, "
            f"optimizer {time_text(summary.optimizer_us)}"
        )


def _row(summary: Summary, name: str, share: Share) -> tuple[str, ...]:
    return name, time_text(share.time_us), percent_text(summary.percent(share.time_us)), str(share.count)


def _use_rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    """Kernel time by use of Tensor Cores, and under each the reasons, the longest first."""
    for use, title in TITLES.items():
        if use not in summary.by_use:
            continue
        yield _row(summary, title, summary.by_use[use])
        reasons = [(reason, part) for (of, reason), part in summary.reasons.items() if of == use]
        for reason, part in reasons[:_SHOWN_REASONS]:
            yield _row(summary, f"  {reason}", part)
        if rest := [part for _, part in reasons[_SHOWN_REASONS:]]:
            more = Share(sum(part.time_us for part in rest), sum(part.count for part in rest))
            yield _row(summary, f"  {len(rest)} more", more)


def _named(row: OperatorTime) -> tuple[str, ...]:
    """'aten::mm', 'backward', 'M 4096, N 1024, K 3137', 'float16'."""
    return row.name, row.direction if row.direction == "backward" else "", row.sizes, row.dtype


def _in_words(row: OperatorTime) -> str:
    """How it stands to Tensor Cores, and where it is called."""
    use = "" if row.use == "none" else TITLES[row.use] + (f": {row.reason}" if row.reason else "")
    modules = f"in {listed(row.modules, 2)}" if row.modules else ""
    return "; ".join(filter(None, (use, modules, f"at {row.line}" if row.line else "")))


def _notes(summary: Summary) -> Iterator[str]:
    """What the trace does not tell."""
    linked = 100.0 - summary.not_linked_percent
    if summary.not_linked_us:
        cut = ""
        if summary.before_window_us:
            before = time_text(summary.before_window_us)
            cut = f"; {before} of the rest were launched before the recorded window"
        yield f"{linked:.1f} % of the kernel time is tied to an operator{cut}."
    if summary.unknown_names:
        time_us = sum(share.time_us for share in summary.unknown_names.values())
        names = [name[:60] for name in summary.unknown_names]
        yield (
            f"{time_text(time_us)} ({percent_text(summary.percent(time_us))}) in "
            f"{plural(len(names), 'kernel')} whose name does not tell whether it uses Tensor Cores: "
            f"{listed(names, _UNKNOWN_NAMES)}."
        )
    if not summary.has_shapes:
        yield "no sizes were recorded: profile with record_shapes=True to see which dims are misaligned."
    if not summary.has_modules:
        yield "no modules were recorded: profile with with_stack=True to see modules and lines."


# ---------------------------------------------------------------- beside a model


def _beside(besides: Sequence[Beside], most: int | None) -> Iterator[Block]:
    beside = besides[0]
    yield Heading("Beside the model", 1)
    if len(besides) > 1:
        yield Table(_BESIDE, _beside_rows(besides))
    yield Lines(list(_beside_head(beside)))
    ops, findings = beside.rows[:most], beside.report.findings
    yield Heading(f"longest operators of the model ({len(ops)} of {len(beside.rows)}), a step")
    yield Table(
        ("op", "measured", "predicted", "error"),
        [
            (
                f"{row.op.name} {row.op.module_path}".strip(),
                time_text(row.measured_us),
                time_text(row.predicted_us),
                f"{100.0 * (row.predicted_us / row.measured_us - 1.0):+.0f} %" if row.measured_us else "",
            )
            for row in ops
        ],
    )
    yield Heading(plural(len(findings), "finding"))
    yield Lines(
        [
            f"{one.location.path}:{one.location.line} {one.code} {one.message} {_costs_text(beside, one)}"
            for one in findings
        ],
        "- ",
    )


def _beside_head(beside: Beside) -> Iterator[str]:
    """How much was matched, and the sums."""
    alignment = beside.alignment
    (entry,) = beside.report.entries
    yield f"beside {entry.target} ({', '.join(beside.said) or 'as given'}):"
    yield (
        f"matched {alignment.matched_ops} of {plural(alignment.ops, 'op')} of the model, "
        f"{alignment.matched_calls} of {plural(alignment.calls, 'operator')} of the trace, "
        f"{percent_text(alignment.matched_percent)} of the time of forward and backward"
        + (f"; {alignment.matched_by_name} by name and order alone" if alignment.matched_by_name else "")
    )
    if alignment.unmatched:
        names = [f"{name} ({time_text(time_us)})" for name, time_us in alignment.unmatched.items()]
        left_us = sum(alignment.unmatched.values())
        yield f"not matched, {time_text(left_us)} a step: {listed(names, 4)}"
    if alignment.matched_percent < POOR_MATCH_PERCENT:
        yield (
            "trace and model are hardly of the same run: give --batch, --input and --mode as in the recorded "
            "one, and the model as it was built for it"
        )
    if alignment.matched_us:
        yield (
            f"matched ops take {time_text(alignment.matched_us)} a step, predicted "
            f"{time_text(beside.predicted_us)} ({beside.error_percent:+.0f} %)"
        )
    if beside.fix is not None:
        yield beside.fix.text
    if beside.estimate.gpu.factors:
        yield f"assumed: {factors_note(beside.estimate.gpu.factors, beside.report.settings.calibration)}"


def _costs_text(beside: Beside, finding: Finding) -> str:
    """Predicted and measured, in one sentence."""
    effect = finding.effect.per_gpu.get(beside.estimate.gpu.id)
    predicted = "not priced"
    if effect is not None:
        predicted = f"predicted cost {time_text(effect.cost_us)}, gain {time_text(effect.gain_us)}"
    measured = beside.measured(finding)
    if measured is None:
        return f"{predicted}; not measured: no operator of the trace was matched."
    which = "the same ops"
    if measured.matched_ops < measured.ops:
        which = f"{measured.matched_ops} of {measured.ops} ops"
    return (
        f"{predicted}; measured {time_text(measured.time_us)} for {which} (predicted "
        f"{time_text(measured.predicted_us)})."
    )
