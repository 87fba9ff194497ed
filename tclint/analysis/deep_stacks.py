"""Stacks of equal blocks, and what fewer and wider ones would take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import sqrt

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import leaf_ops, width_dims
from tclint.core.finding import Effect
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.ops import Graph, Op

FEWEST_BLOCKS = 4
_NUMBER = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")
_LIKED = 64
"""Widths are rounded to its multiples, so that a wide block is not a misaligned one."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Equal blocks that run one after the other."""

    name: str
    """Of the list that holds them; empty for the model itself."""
    count: int
    ops: tuple[Op, ...]
    """All ops of all blocks."""
    products: tuple[Op, ...]
    """Their linear layers."""


@dataclass(frozen=True, slots=True)
class Wide:
    """A stack as half as many blocks."""

    sizes: tuple[tuple[int, int], ...]
    """(present, wider) widths."""
    effect: Effect


def deep_stacks(context: GraphContext) -> tuple[Stack, ...]:
    """Stacks of at least FEWEST_BLOCKS blocks whose linear layers are mostly not limited by arithmetic."""
    blocks: dict[str, dict[int, list[Op]]] = {}
    for op in context.graph.ops:
        number = _NUMBER.search(op.module_path)
        if number is not None:
            name = op.module_path[: number.start()]
            blocks.setdefault(name, {}).setdefault(int(number[1]), []).append(op)
    leaves = {op.index for op in leaf_ops(context.graph) if op.kind in ("linear", "matmul")}
    found = []
    for name, by_number in blocks.items():
        # The most frequent kind of block: a list may begin with a stem and end with a head.
        alike: dict[tuple[object, ...], list[list[Op]]] = {}
        for ops in by_number.values():
            alike.setdefault(_signature(ops), []).append(ops)
        same = max(alike.values(), key=len)
        if any(op.kind in ("conv", "rnn") for op in same[0]):
            continue  # their width is not that of the linear layers beside them
        products = [op for ops in same for op in ops if op.kind == "linear" and op.index in leaves]
        if len(same) >= FEWEST_BLOCKS and products and _waits(context, products):
            found.append(Stack(name, len(same), tuple(op for ops in same for op in ops), tuple(products)))
    return tuple(found)


def _signature(ops: list[Op]) -> tuple[object, ...]:
    return tuple((op.name, tuple(spec.shape for spec in op.inputs)) for op in ops)


def _waits(context: GraphContext, products: list[Op]) -> bool:
    """On every GPU: arithmetic limits less than half of the products' time."""
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        rows = [row for op in products for row in estimate.rows_of(op.index)]
        total_us = sum(row.time_us for row in rows)
        if sum(row.time_us for row in rows if row.limiter == "math") * 2 >= total_us:
            return False
    return True


def as_wide(context: GraphContext, stack: Stack) -> Wide | None:
    """Half of the blocks at 1.41 times the width, rounded: about equal parameters and work.

    Layers outside of the stack that share its width grow with it. None where no such model is known.
    """
    sizes: dict[DimGroup, int] = {}
    for op in stack.products:
        for dim in width_dims(op, context.dims):
            group = dim.group
            if group is None or group.fixed or group.unresolved or group.is_output:
                return None
            if not group.composite:
                sizes[group] = _LIKED * max(round(group.size * sqrt(2.0) / _LIKED), 1)
    for op in stack.products:
        for dim in width_dims(op, context.dims):
            if dim.group is not None and dim.group.composite and not set(dim.group.roots) & set(sizes):
                return None  # heads times head size: which of them grows is not for us to say
    try:
        wider = context.dims.resize(sizes)
    except DimsUnresolved:
        return None
    pairs = tuple(sorted({(group.size, size) for group, size in sizes.items()}))
    return Wide(pairs, _effect(context, stack, wider))


def _effect(context: GraphContext, stack: Stack, wider: Graph) -> Effect:
    from tclint.analysis.graph_context import gpu_effect
    from tclint.cost.estimate import estimate

    indices = [op.index for op in stack.ops]
    per_gpu = {}
    for scenario in context.scenarios:
        before, after = context.estimate(scenario), estimate(wider, scenario)
        # Half of the wider blocks; the optimizer sees as many parameters as before.
        step_us = (
            after.step_time_us
            - after.optimizer_time_us
            + before.optimizer_time_us
            - after.time_of_us(indices) / 2
        )
        per_gpu[before.gpu.id] = gpu_effect(before, indices, before.step_time_us - step_us)
    return Effect(per_gpu=per_gpu, op_indices=tuple(sorted(indices)))
