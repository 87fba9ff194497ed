"""Run-time settings of torch that a file sets: TF32, cuDNN, determinism, the default dtype."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tclint.source.names.resolve import Possible
from tclint.source.syntax.tables import Assignment, Expression, Function

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.facts.program import Program

_SWITCH_ATTRIBUTES = frozenset(
    (
        "allow_tf32",
        "fp32_precision",
        "benchmark",
        "deterministic",
        "enabled",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
)

SWITCH_CALLS = (
    "torch.set_float32_matmul_precision",
    "torch.use_deterministic_algorithms",
    "torch.set_deterministic",
    "torch.autograd.set_detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly",
    "torch.set_default_dtype",
)


class Switch(NamedTuple):
    """A run-time setting is assigned, or set by a call."""

    name: str
    """'torch.backends.cudnn.benchmark', 'torch.set_float32_matmul_precision', ..."""
    value: Possible
    expression: Expression | None
    function: Function
    block: int
    site: int
    position: int
    """Index of its event in the function."""


def find_switches(program: Program) -> tuple[Switch, ...]:
    """Assignments to `torch.backends...` and calls of setters, in the order of the file."""
    found: list[Switch] = []
    if program.tables.identifiers & _SWITCH_ATTRIBUTES:
        for function in program.tables.functions:
            for position, event in enumerate(function.events):
                if isinstance(event, Assignment) and not event.unpacked:
                    found.extend(_assigned_switches(program, function, event, position))
    for called in program.calls(*SWITCH_CALLS):
        first = called.call.arguments[0].value if called.call.arguments else None
        value = (
            program.resolver.evaluate(called.function, first) if first is not None else Possible((), False)
        )
        found.append(
            Switch(
                called.qualified,
                value,
                first,
                called.function,
                called.block,
                called.call.site,
                called.position,
            )
        )
    return tuple(sorted(found, key=lambda switch: switch.site))


def comment_says(
    context: SourceContext,
    switch: Switch,
    says: re.Pattern[str],
    *,
    over: re.Pattern[str],
    lines_above: int | None = None,
) -> bool:
    """Whether a comment beside a switch, or above it and the lines that may lie between, says something.

    Args:
        over: what lines between the comment and the switch begin with.
        lines_above: how many lines are looked at; None: as many as there are.
    """
    lines = context.lines()
    number = context.location(switch.site).line - 1
    if says.search(lines[number]):
        return True
    for line in reversed(lines[:number][-lines_above if lines_above else None :]):
        if line.lstrip().startswith("#") and says.search(line):
            return True
        if not over.match(line):
            return False
    return False


def _assigned_switches(
    program: Program, function: Function, event: Assignment, position: int
) -> Iterator[Switch]:
    for target in event.targets:
        last = target.rpartition(".")[2]
        if last not in _SWITCH_ATTRIBUTES or "." not in target or event.operator:
            continue
        for name in program.resolver.qualified(function, target):
            if name.startswith("torch.backends."):
                value = program.resolver.evaluate(function, event.value)
                yield Switch(name, value, event.value, function, event.block, event.site, position)
