"""A profile as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tclint.core.markup import prose, shortened, table, text
from tclint.core.units import percent_text, time_text
from tclint.profile import ranks
from tclint.profile.profile import RankProfile
from tclint.profile.tensor_cores import TITLES
from tclint.profile.text import SHOWN_OPERATORS_VERBOSE, head, kind_rows, notes, operator_name, use_rows

_NUMBERS = frozenset({1, 2, 3})
_NAME_CHARACTERS = 160


def render(profiles: Sequence[RankProfile]) -> str:
    """Every trace in full, one section each; of several, which is the slowest."""
    first = [text(ranks.spread(profiles))] if len(profiles) > 1 else []
    return "\n\n".join([*first, *("\n".join(_one(profile)) for profile in profiles)]) + "\n"


def _one(profile: RankProfile) -> Iterator[str]:
    summary = profile.summary
    title, *rest = head(summary)
    yield f"## {text(title)}\n"
    yield from (f"- {text(line)}" for line in rest)
    yield "\n### Use of Tensor Cores\n"
    yield from table(["Use", "Time", "Share", "Kernels"], _cells(use_rows(summary)), right=_NUMBERS)
    yield "\n### Kinds\n"
    yield from table(["Kind", "Time", "Share", "Kernels"], _cells(kind_rows(summary)), right=_NUMBERS)
    if profile.observations:
        yield "\n### What stands out\n"
        for one in profile.observations:
            rules = f" ({', '.join(one.rules)})" if one.rules else ""
            took = f"{time_text(one.time_us)}, {percent_text(one.percent)}"
            yield f"- {text(took)}: {prose(one.text)}{rules}"
    yield "\n### Longest operators\n"
    rows = [
        [
            text(shortened(operator_name(row), _NAME_CHARACTERS)),
            text(time_text(row.time_us)),
            text(percent_text(summary.percent(row.time_us))),
            str(row.calls),
            text("" if row.use == "none" else TITLES[row.use] + (f": {row.reason}" if row.reason else "")),
        ]
        for row in summary.operators[:SHOWN_OPERATORS_VERBOSE]
    ]
    yield from table(["Operator", "Time", "Share", "Calls", "Tensor Cores"], rows, right=_NUMBERS)
    remarks = list(notes(summary))
    if remarks:
        yield ""
        yield from (f"- {text(note)}" for note in remarks)


def _cells(rows: Sequence[tuple[str, ...]]) -> list[list[str]]:
    return [
        [("&nbsp;&nbsp;" if row[0].startswith("  ") else "") + text(row[0].strip()), *map(text, row[1:])]
        for row in rows
    ]
