"""Two traces of one program beside each other: which kernels of which modules take longer in the second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance

from tclint.core.document import Block, Document, Heading, Lines, Table
from tclint.core.units import time_text
from tclint.profile.profile import RankProfile, slowest_first
from tclint.profile.summary import occupation
from tclint.profile.tensor_cores import TITLES, Judge, KernelUse
from tclint.profile.trace import Kernel, Trace
from tclint.profile.works import sizes_text

_LEAST_STEPS = 3
"""Fewer do not tell by how much steps differ."""
_DEVIATIONS = 2.0
"""Standard errors of the difference: what is less is as far apart as steps of one trace are."""
_NOT_LINKED = "(no operator)"
_MODULE_PARTS = 3
_HEADER = ("before", "after", "change")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two, per step."""

    time_us: float = 0.0
    kernels: float = 0.0
    use: KernelUse = "none"
    """Use by the kernels that took the most time."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The kernels of one kind in one module."""

    module: str
    """Its path as the profiler names it; else the line, or the operator with its sizes."""
    kind: str
    before: Side
    after: Side
    is_noise: bool
    """Whether steps of one trace differ by as much."""

    @property
    def change_us(self) -> float:
        return self.after.time_us - self.before.time_us


@dataclass(frozen=True, slots=True)
class Compared:
    """A step of two traces; times in microseconds."""

    before: RankProfile
    after: RankProfile
    totals: tuple[tuple[str, float, float], ...]
    """What the step's time was: name, before, after."""
    kinds: tuple[Row, ...]
    """Totals over all modules; the largest change first, slower or faster."""
    rows: tuple[Row, ...]
    """By module and kind, likewise."""
    notes: tuple[str, ...] = ()
    """Why the two are not of one kind."""


def compare(before: Sequence[RankProfile], after: Sequence[RankProfile]) -> Compared:
    """The slowest rank of one profile beside the slowest of another."""
    first, second = (slowest_first(profiles)[0] for profiles in (before, after))
    steps = [_Steps(profile.trace) for profile in (first, second)]
    return Compared(
        first,
        second,
        tuple((name, steps[0].total(name), steps[1].total(name)) for name in _TOTALS),
        _rows(steps, by_module=False),
        _rows(steps, by_module=True),
        tuple(_notes(first, second)),
    )


_TOTALS = ("step", "kernels", "communication", "copies and memsets", "idle")


class _Steps:
    """What the steps of a trace ran; a trace without a schedule is one step."""

    def __init__(self, trace: Trace) -> None:
        kernels = [kernel for kernel in trace.kernels if kernel.step in trace.steps]
        self.numbers: tuple[int | None, ...] = tuple(trace.steps) if kernels else (None,)
        self.kernels = kernels or trace.kernels
        self.judge = Judge(trace.device, trace.kernels)

    def number(self, kernel: Kernel) -> int | None:
        return kernel.step if self.numbers != (None,) else None

    def total(self, name: str) -> float:
        """One of _TOTALS, a step."""
        kernels = sorted(self.kernels, key=lambda one: one.start_us)
        window_us = max(kernel.end_us for kernel in kernels) - kernels[0].start_us
        sums = dict.fromkeys(_TOTALS, 0.0)
        for kernel in kernels:
            if kernel.activity != "kernel":
                sums["copies and memsets"] += kernel.time_us
            elif self.judge.verdict(kernel).kind == "communication":
                sums["communication"] += kernel.time_us
            else:
                sums["kernels"] += kernel.time_us
        sums |= {"step": window_us, "idle": window_us - occupation(kernels)[0]}
        return sums[name] / len(self.numbers)


def _rows(steps: Sequence[_Steps], *, by_module: bool) -> tuple[Row, ...]:
    before, after = (_sides(one, by_module) for one in steps)
    empty = _Times()
    found = [
        _row(key, before.get(key, empty), after.get(key, empty), steps)
        for key in dict.fromkeys((*before, *after))
    ]
    return tuple(sorted(found, key=lambda row: -abs(row.change_us)))


class _Times:
    """The kernels of one row in one trace."""

    def __init__(self) -> None:
        self.by_step: dict[int | None, float] = defaultdict(float)
        self.by_use: dict[tuple[KernelUse, str], float] = defaultdict(float)
        self.kernels = 0

    def side(self, steps: int) -> Side:
        none: tuple[KernelUse, str] = ("none", "")
        use, reason = max(self.by_use, key=lambda key: self.by_use[key], default=none)
        return Side(sum(self.by_step.values()) / steps, self.kernels / steps, use, reason)


def _sides(steps: _Steps, by_module: bool) -> dict[tuple[str, str], _Times]:
    found: dict[tuple[str, str], _Times] = defaultdict(_Times)
    for kernel in steps.kernels:
        if kernel.activity != "kernel":
            continue
        verdict = steps.judge.verdict(kernel)
        times = found[_place(kernel) if by_module else "", verdict.kind]
        times.by_step[steps.number(kernel)] += kernel.time_us
        times.by_use[verdict.use, verdict.reason] += kernel.time_us
        times.kernels += 1
    return found


def _place(kernel: Kernel) -> str:
    """What the kernel is of, by what both traces say of it; the backward pass of a module is the module's."""
    operator = kernel.operator
    if operator is None:
        return _NOT_LINKED
    if operator.is_of_optimizer:
        return "optimizer"
    own = operator.origin
    return own.module or " ".join(part for part in (operator.name, sizes_text(operator)) if part)


def _row(key: tuple[str, str], before: _Times, after: _Times, steps: Sequence[_Steps]) -> Row:
    sides = [times.side(len(one.numbers)) for times, one in zip((before, after), steps, strict=True)]
    first, second = (
        [times.by_step.get(number, 0.0) for number in one.numbers]
        for times, one in zip((before, after), steps, strict=True)
    )
    return Row(*key, sides[0], sides[1], _is_noise(first, second))


def _is_noise(first: Sequence[float], second: Sequence[float]) -> bool:
    if min(len(first), len(second)) < _LEAST_STEPS:
        return False
    error = sqrt(variance(first) / len(first) + variance(second) / len(second))
    return error > 0.0 and abs(fmean(first) - fmean(second)) < _DEVIATIONS * error


def _notes(first: RankProfile, second: RankProfile) -> Iterable[str]:
    one, other = first.summary, second.summary
    if one.gpu != other.gpu:
        yield f"the traces are of different GPUs: {one.gpu or 'unnamed'} and {other.gpu or 'unnamed'}"
    for summary in (one, other):
        if not summary.steps:
            yield f"{summary.path} marks no steps: all of it counts as one"
        if not summary.has_modules:
            yield f"{summary.path} has no modules (with_stack=True records them): operators stand for them"
    if min(one.steps, other.steps) < _LEAST_STEPS:
        yield f"with fewer than {_LEAST_STEPS} steps, it is not known by how much steps differ anyway"


# ---------------------------------------------------------------- as a document


def compared_document(compared: Compared, most: int) -> Document:
    """The step, its kinds of kernels, and what changed most, slower and faster apart.

    Args:
        most: modules of either.
    """
    found: list[Block] = [
        Heading(_title(compared), 1),
        Table(("a step", *_HEADER), _totals(compared)),
        Heading("by kind"),
        Table(("kind", *_HEADER), [_cells(row.kind, row) for row in compared.kinds]),
    ]
    for title, rows in _parts(compared, most):
        cells = [_cells(_name(row), row) for row in rows]
        found += [
            Heading(title),
            Table(("module, kind", *_HEADER, "Tensor Cores"), cells, [_use(row) for row in rows]),
        ]
    return [*found, Lines(compared.notes, "note: ")]


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
