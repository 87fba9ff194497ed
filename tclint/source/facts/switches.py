"""Run-time settings of torch that a file sets: TF32, cuDNN, determinism, the default dtype."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tclint.source.names.queries import Called, words
from tclint.source.names.resolve import Possible, Resolver
from tclint.source.syntax.tables import Assignment, Expression, Function

_SWITCH_ATTRIBUTES = words(
    "allow_tf32 fp32_precision benchmark deterministic enabled allow_fp16_reduced_precision_reduction "
    "allow_bf16_reduced_precision_reduction"
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
    node_id: int
    position: int
    """Index of its event in the function."""


def find_switches(resolver: Resolver, setters: Iterable[Called]) -> tuple[Switch, ...]:
    """Assignments to `torch.backends...` and calls of setters, in the order of the file.

    Args:
        setters: the file's calls of `SWITCH_CALLS`.
    """
    found: list[Switch] = []
    if resolver.tables.identifiers & _SWITCH_ATTRIBUTES:
        for function in resolver.tables.functions:
            for position, event in enumerate(function.events):
                if isinstance(event, Assignment) and not event.unpacked:
                    found.extend(_assigned_switches(resolver, function, event, position))
    for called in setters:
        first = called.call.arguments[0].value if called.call.arguments else None
        value = resolver.evaluate(called.function, first) if first is not None else Possible((), False)
        found.append(
            Switch(
                called.qualified,
                value,
                first,
                called.function,
                called.block,
                called.call.node_id,
                called.position,
            )
        )
    return tuple(sorted(found, key=lambda switch: switch.node_id))


def _assigned_switches(
    resolver: Resolver, function: Function, event: Assignment, position: int
) -> Iterator[Switch]:
    for target in event.targets:
        last = target.rpartition(".")[2]
        if last not in _SWITCH_ATTRIBUTES or "." not in target or event.operator:
            continue
        for name in resolver.qualified(function, target):
            if name.startswith("torch.backends."):
                value = resolver.evaluate(function, event.value)
                yield Switch(name, value, event.value, function, event.block, event.node_id, position)
