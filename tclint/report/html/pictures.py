"""Pictures of the HTML report that need no script: bars of SVG, each with its numbers in words beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tclint.core.units import bytes_text, time_text
from tclint.engine.report import Metrics, PlannedFix
from tclint.report.html.markup import text
from tclint.report.step_text import memory_parts

Part = tuple[str, float, str]
"""Name, size, and the size in words."""


def phases(metrics: Metrics) -> str:
    """Forward, backward and optimizer as shares of the step."""
    times = (
        ("forward", metrics.forward_time_us),
        ("backward", metrics.backward_time_us),
        ("optimizer", metrics.optimizer_time_us),
    )
    return _stacked("Phases of the step", [(name, time_us, time_text(time_us)) for name, time_us in times])


def memory(metrics: Metrics) -> str:
    """What the memory of the step is needed for."""
    if metrics.memory is None:
        return ""
    parts = [(name, float(size), bytes_text(size)) for name, size in memory_parts(metrics.memory)]
    return _stacked(f"Memory, {bytes_text(metrics.memory.total_bytes)}", parts)


def fixes(metrics: Metrics, plan: Sequence[PlannedFix]) -> str:
    """The step as it is, after each fix of the plan, or with the only one made."""
    steps = [("as it is", metrics.step_time_us)]
    steps += [
        (f"{number}. {fix.code} {fix.name}", fix.step_time_us[metrics.gpu])
        for number, fix in enumerate(plan, start=1)
        if metrics.gpu in fix.step_time_us
    ]
    if len(steps) < 2 and metrics.step_time_fixed_us is not None:
        steps.append(("with the fixes made", metrics.step_time_fixed_us))
    longest = max(time_us for _, time_us in steps)
    if len(steps) < 2 or not math.isfinite(longest) or longest <= 0.0:
        return ""
    rows = "".join(
        f"<dt>{text(name)}</dt><dd>{_bar([time_us / longest])} {text(time_text(time_us))}</dd>"
        for name, time_us in steps
    )
    return f"<h4>The step, fix by fix</h4><dl class='steps'>{rows}</dl>"


def _stacked(title: str, parts: Sequence[Part]) -> str:
    """One bar of all parts, and a legend with the size of each."""
    known = [part for part in parts if math.isfinite(part[1]) and part[1] > 0.0]
    whole = sum(size for _, size, _ in known)
    if not known:
        return ""
    legend = "".join(
        f"<dt>{_swatch(index)}{text(name)}</dt><dd>{text(said)}</dd>"
        for index, (name, _, said) in enumerate(known)
    )
    bar = _bar([size / whole for _, size, _ in known])
    return f"<h4>{text(title)}</h4>{bar}<dl>{legend}</dl>"


def _bar(shares: Sequence[float]) -> str:
    """Parts of a whole side by side; whoever cannot see them reads the numbers beside it."""
    at = 0.0
    drawn = []
    for index, share in enumerate(shares):
        drawn.append(f"<rect class='part-{index}' x='{at:.2f}' width='{100 * share:.2f}' height='10'></rect>")
        at += 100 * share
    return (
        "<svg class='parts' viewBox='0 0 100 10' preserveAspectRatio='none' aria-hidden='true'>"
        f"{''.join(drawn)}</svg>"
    )


def _swatch(index: int) -> str:
    return (
        "<svg class='swatch' viewBox='0 0 10 10' aria-hidden='true'>"
        f"<rect class='part-{index}' width='10' height='10'></rect></svg>"
    )
