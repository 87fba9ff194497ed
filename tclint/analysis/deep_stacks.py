"""Stacks of equal blocks, and what fewer and wider ones would take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import leaf_ops, width_dims
from tclint.analysis.options import Option, best_option, priced
from tclint.analysis.what_if.layer_edits import emptied, with_ops
from tclint.graph.dims.coupled import DimGroup
from tclint.graph.ops import Graph, Op

FEWEST_BLOCKS = 4
_NUMBER = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")
_LIKED = 64
"""Widths are rounded to its multiples, so that a wide block is not a misaligned one."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Equal blocks that run one after the other."""

    name: str
    """The name of the list that holds them; empty for the model itself."""
    count: int
    ops: tuple[Op, ...]
    """All ops of all blocks."""
    products: tuple[Op, ...]
    """Their linear layers."""


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


def as_wide(context: GraphContext, stack: Stack) -> Option[tuple[int, Sizes]] | None:
    """Half, a quarter, ... of the blocks, each so much wider that parameters and work are about equal.

    Layers outside of the stack that share its width grow with it. None where no such model is known.
    """
    groups: dict[DimGroup, None] = {}
    composites = []
    for op in stack.products:
        for dim in width_dims(op, context.dims):
            group = dim.group
            if group is None or group.fixed or group.unresolved or group.is_output:
                return None
            if group.composite:
                composites.append(group)
            else:
                groups[group] = None
    if any(not set(group.roots) & set(groups) for group in composites):
        return None  # heads times head size: which of them grows is not for us to say
    tried = priced(context, [op.index for op in stack.ops], _options(stack, tuple(groups)))
    return best_option(context, tried, liked=lambda what: what[0])


Sizes = tuple[tuple[int, int], ...]
"""(present, wider) widths."""


def _options(stack: Stack, groups: tuple[DimGroup, ...]) -> Iterator[tuple[tuple[int, Sizes], Change]]:
    """The number of blocks that are left and their widths, and the change."""
    left = stack.count // 2
    while left:
        wider = sqrt(stack.count / left)
        sizes = {group: _LIKED * max(round(group.size * wider / _LIKED), 1) for group in groups}
        per_block = len(stack.ops) // stack.count
        gone = stack.ops[left * per_block :]
        change = Change(tuple(sizes.items()), partial(without_work, ops=gone))
        yield (left, tuple(sorted({(group.size, size) for group, size in sizes.items()}))), change
        left //= 2


def without_work(graph: Graph, ops: Sequence[Op]) -> Graph:
    """The graph with these ops as views of their inputs."""
    return with_ops(graph, {op.index: emptied(graph.ops[op.index]) for op in ops})
