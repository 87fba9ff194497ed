"""Two traces compared, as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tclint.core.markup import table as markdown_table
from tclint.core.markup import text as markup
from tclint.core.table import table
from tclint.core.text import printable, wrapped
from tclint.core.units import time_text
from tclint.core.version import __version__
from tclint.profile.compared import Compared, Row, Side
from tclint.profile.tensor_cores import TITLES

_SHOWN = 12
_SHOWN_VERBOSE = 80
_MODULE_PARTS = 3
_HEADER = ("before", "after", "change")
_SCHEMA_VERSION = "1.0"


def render(compared: Compared, *, width: int = 100, verbose: bool = False) -> str:
    """The step, its kinds of kernels, and what changed most, slower and faster apart."""
    lines = [*wrapped(printable(_title(compared)), width, hanging="  "), ""]
    lines += table(("a step", *_HEADER), _totals(compared))
    lines += ["", "by kind", *table(("kind", *_HEADER), [_cells(row.kind, row) for row in compared.kinds])]
    for title, rows in _parts(compared, _SHOWN_VERBOSE if verbose else _SHOWN):
        lines += ["", title]
        cells = [_cells(printable(_name(row)), row) for row in rows]
        head, *body = table(("module, kind", *_HEADER), cells)
        lines.append(head)
        for line, row in zip(body, rows, strict=True):
            lines.append(line)
            use = _use(row)
            lines += wrapped(printable(use), width, indent="      ", hanging="      ") if use else []
    for note in compared.notes:
        lines += wrapped(printable(f"note: {note}"), width, hanging="  ")
    return "\n".join(lines) + "\n"


def markdown(compared: Compared) -> str:
    """The same as Markdown."""
    right = frozenset({1, 2, 3})
    lines = [f"## {markup(_title(compared))}\n"]
    lines += markdown_table(["A step", "Before", "After", "Change"], _marked(_totals(compared)), right=right)
    lines.append("\n### Kinds\n")
    kinds = _marked([_cells(row.kind, row) for row in compared.kinds])
    lines += markdown_table(["Kind", "Before", "After", "Change"], kinds, right=right)
    for title, rows in _parts(compared, _SHOWN_VERBOSE):
        lines.append(f"\n### {markup(title.capitalize())}\n")
        cells = _marked([(*_cells(_name(row), row), _use(row)) for row in rows])
        header = ["Module, kind", "Before", "After", "Change", "Tensor Cores"]
        lines += markdown_table(header, cells, right=right)
    lines += ["", *(f"- {markup(note)}" for note in compared.notes)] if compared.notes else []
    return "\n".join(lines) + "\n"


def to_dict(compared: Compared) -> dict[str, Any]:
    """Plain values; times in microseconds of one step."""
    return {
        "schema_version": _SCHEMA_VERSION,
        "tool": {"name": "tclint", "version": __version__},
        "before": compared.before.summary.path,
        "after": compared.after.summary.path,
        "step": {name: {"before_us": before, "after_us": after} for name, before, after in compared.totals},
        "by_kind": [_row_dict(row) for row in compared.kinds],
        "by_module": [_row_dict(row) for row in compared.rows],
        "notes": list(compared.notes),
    }


def _row_dict(row: Row) -> dict[str, Any]:
    found = {**asdict(row), "change_us": row.change_us}
    return found if row.module else {key: value for key, value in found.items() if key != "module"}


def _title(compared: Compared) -> str:
    one, other = compared.before.summary, compared.after.summary
    _, before_us, after_us = compared.totals[0]
    gpu = one.gpu or "an unnamed GPU"
    return (
        f"{one.path} -> {other.path}, {gpu}: a step takes {time_text(before_us)} -> {time_text(after_us)}"
        f"{_percent(before_us, after_us)}"
    )


def _percent(before_us: float, after_us: float) -> str:
    return f" ({100.0 * (after_us / before_us - 1.0):+.1f} %)" if before_us > 0.0 else ""


def _change(before_us: float, after_us: float) -> str:
    if before_us == after_us:
        return "none"
    sign = "+" if after_us >= before_us else "-"
    return f"{sign}{time_text(abs(after_us - before_us))}{_percent(before_us, after_us)}"


def _totals(compared: Compared) -> list[tuple[str, ...]]:
    return [
        (name, time_text(before), time_text(after), _change(before, after))
        for name, before, after in compared.totals
        if before or after
    ]


def _cells(name: str, row: Row) -> tuple[str, ...]:
    before, after = row.before.time_us, row.after.time_us
    change = "as steps differ anyway" if row.is_noise else _change(before, after)
    return name, time_text(before), time_text(after), change


def _name(row: Row) -> str:
    parts = row.module.split("/") if not row.module.startswith(("aten::", "(")) else [row.module]
    shown = "/".join(parts[-_MODULE_PARTS:])
    return f"{'.../' if len(parts) > _MODULE_PARTS else ''}{shown}, {row.kind}"


def _parts(compared: Compared, most: int) -> Iterator[tuple[str, Sequence[Row]]]:
    """What is told apart from noise, the largest first."""
    told = [row for row in compared.rows if not row.is_noise]
    for title, sign in (("slower", 1), ("faster", -1)):
        rows = [row for row in told if sign * row.change_us > 0.0]
        if rows:
            yield f"{title} ({min(most, len(rows))} of {len(rows)})", rows[:most]


def _use(row: Row) -> str:
    """What the kernels do with Tensor Cores, where that changed; that they are only in one of the traces."""
    if not row.before.kernels:
        return f"new: {_title_of(row.after)}" if row.after.use != "none" else "new"
    if not row.after.kernels:
        return "gone"
    was, now = _title_of(row.before), _title_of(row.after)
    parts = [f"was {was}, is {now}"] if was != now else []
    if round(row.before.kernels, 1) != round(row.after.kernels, 1):
        parts.append(f"{row.before.kernels:g} -> {row.after.kernels:g} kernels a step")
    return "; ".join(parts)


def _title_of(side: Side) -> str:
    return TITLES[side.use] + (f" ({side.reason})" if side.reason else "")


def _marked(rows: Sequence[tuple[str, ...]]) -> list[list[str]]:
    return [[markup(cell) for cell in row] for row in rows]
