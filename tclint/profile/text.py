"""A profile as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tclint.core.table import table
from tclint.core.text import listed, printable, wrapped
from tclint.core.units import percent_text, plural, time_text
from tclint.profile import ranks
from tclint.profile.profile import RankProfile
from tclint.profile.summary import OperatorTime, Summary
from tclint.profile.tensor_cores import TITLES

SHOWN_OPERATORS = 10
SHOWN_OPERATORS_VERBOSE = 60
_NAME_CHARACTERS = 46
_UNKNOWN_NAMES = 5


def render(profiles: Sequence[RankProfile], *, width: int = 100, verbose: bool = False) -> str:
    """One trace in full; of several, a table and the slowest."""
    lines: list[str] = []
    if len(profiles) > 1:
        cells = [tuple(map(printable, row)) for row in ranks.rows(profiles)]
        lines += [
            *table(ranks.HEADER, cells, indent=""),
            *wrapped(printable(ranks.spread(profiles)), width),
            "",
        ]
    lines += _one(ranks.slowest_first(profiles)[0], width, verbose)
    return "\n".join(lines) + "\n"


def _one(profile: RankProfile, width: int, verbose: bool) -> Iterator[str]:
    summary = profile.summary
    yield from (line for text in head(summary) for line in wrapped(text, width, hanging="  "))
    yield ""
    yield "kernel time by use of Tensor Cores"
    yield from table(("use", "time", "share", "kernels"), use_rows(summary))
    yield ""
    yield "by kind"
    yield from table(("kind", "time", "share", "kernels"), kind_rows(summary))
    if profile.observations:
        yield ""
        yield "what stands out"
        for one in profile.observations:
            text = f"{time_text(one.time_us)}, {percent_text(one.percent)}: {printable(one.text)}"
            if one.rules:
                text += f" (tclint explain {', '.join(one.rules)})"
            yield from wrapped(text, width, indent="  - ", hanging="    ")
    yield ""
    most = SHOWN_OPERATORS_VERBOSE if verbose else SHOWN_OPERATORS
    yield f"longest operators ({min(most, len(summary.operators))} of {len(summary.operators)})"
    yield from _operator_lines(summary, summary.operators[:most], width)
    remarks = list(notes(summary))
    if remarks:
        yield ""
        for note in remarks:
            yield from wrapped(f"note: {printable(note)}", width, hanging="  ")


def head(summary: Summary) -> Iterator[str]:
    """What ran, and what the GPU did with its time."""
    gpu = printable(summary.gpu) or "an unnamed GPU"
    steps = plural(summary.steps, "step") if summary.steps else "no steps marked"
    rank = f", rank {summary.rank}" if summary.rank is not None else ""
    yield f"{printable(summary.path)}: {gpu}{rank}, {steps}"
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
    for name, time_us in (
        ("host copies", summary.transfer_us),
        ("device copies", summary.device_copy_us),
        ("memsets", summary.memset_us),
    ):
        if time_us:
            parts.append(f"{name} {time_text(time_us)}")
    yield ", ".join(parts)
    if summary.backward_us or summary.optimizer_us:
        forward_us = summary.kernel_time_us - summary.backward_us - summary.optimizer_us
        yield (
            f"forward and other {time_text(forward_us)}, backward {time_text(summary.backward_us)}, "
            f"optimizer {time_text(summary.optimizer_us)}"
        )


def use_rows(summary: Summary) -> list[tuple[str, ...]]:
    """Kernel time by use of Tensor Cores, and under each the reasons, the longest first."""
    rows: list[tuple[str, ...]] = []
    for use, title in TITLES.items():
        share = summary.by_use.get(use)
        if share is None:
            continue
        rows.append(
            (title, time_text(share.time_us), percent_text(summary.percent(share.time_us)), str(share.count))
        )
        reasons = [(reason, part) for (of, reason), part in summary.reasons.items() if of == use]
        for reason, part in reasons[:4]:
            rows.append(
                (
                    f"  {reason}",
                    time_text(part.time_us),
                    percent_text(summary.percent(part.time_us)),
                    str(part.count),
                )
            )
        if len(reasons) > 4:
            rest = sum(part.time_us for _, part in reasons[4:])
            many = sum(part.count for _, part in reasons[4:])
            rows.append(
                (
                    f"  {len(reasons) - 4} more",
                    time_text(rest),
                    percent_text(summary.percent(rest)),
                    str(many),
                )
            )
    return rows


def kind_rows(summary: Summary) -> list[tuple[str, ...]]:
    """Kernel time by kind, the longest first."""
    return [
        (kind, time_text(share.time_us), percent_text(summary.percent(share.time_us)), str(share.count))
        for kind, share in summary.by_kind.items()
    ]


def operator_name(row: OperatorTime) -> str:
    """'aten::mm backward M 4096, N 1024, K 3137 float16'."""
    direction = row.direction if row.direction == "backward" else ""
    return " ".join(part for part in (row.name, direction, row.sizes, row.dtype) if part)


def _operator_lines(summary: Summary, rows: Sequence[OperatorTime], width: int) -> Iterator[str]:
    for row in rows:
        share = percent_text(summary.percent(row.time_us))
        name = operator_name(row)
        name = name if len(name) <= 2 * _NAME_CHARACTERS else name[: 2 * _NAME_CHARACTERS - 3] + "..."
        text = f"{time_text(row.time_us):>8}  {share:>6}  {row.calls:>5} x  {printable(name)}"
        yield from wrapped(text, width, indent="  ", hanging=" " * 29)
        details = []
        if row.use != "none":
            details.append(TITLES[row.use] + (f": {row.reason}" if row.reason else ""))
        if row.modules:
            details.append(f"in {listed(row.modules, 2)}")
        if row.line:
            details.append(f"at {row.line}")
        if details:
            yield from wrapped(printable("; ".join(details)), width, indent=" " * 29, hanging=" " * 29)


def notes(summary: Summary) -> Iterator[str]:
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
