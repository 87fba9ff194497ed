"""Finds aligned widths that fill tiles and waves badly, and faster sizes near them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tclint.analysis.attention import attention_blocks
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import (
    OpDim,
    by_line,
    costliest,
    gain_phrase,
    indices_of,
    layers_take,
    related_sites,
    rounded,
    sentence,
    width_dims,
)
from tclint.analysis.widths.alignment import is_misaligned
from tclint.analysis.widths.bounds import quantization_loss_percent
from tclint.analysis.widths.padding import LARGEST_CUT, of_the_same_width
from tclint.analysis.widths.resizing import Resizing, best_resizing, surplus_percent
from tclint.core.finding import Finding, Fix
from tclint.core.rule import Rule
from tclint.graph.dims.coupled import DimGroup
from tclint.graph.ops import Op


def chosen_widths(context: GraphContext) -> list[OpDim]:
    """Aligned widths of linear layers and dense convolutions that the model's author is free to choose."""
    attention = {op.index for block in attention_blocks(context.graph) for op in block.ops}
    found = []
    for op in context.graph.products:
        if op.index in attention or op.groups != 1 or op.kind not in ("linear", "matmul", "conv"):
            continue
        for dim in width_dims(op, context.dims):
            group = dim.group
            if group is None or group.fixed or group.unresolved or group.is_batch or group.is_output:
                continue
            if not group.is_vocabulary and not is_misaligned(dim.size, context.settings.precision):
                found.append(dim)
    return found


def width_findings(
    rule: Rule, context: GraphContext, dims: Sequence[OpDim], multiples: tuple[int, ...]
) -> Iterator[Finding]:
    """One finding for each line whose widths are faster at a neighbouring multiple."""
    ops = {dim.op.index: dim.op for dim in dims}
    done: set[str] = set()
    for at_line in by_line(ops.values()).values():
        indices = frozenset(indices_of(at_line))
        groups = {
            dim.group.id: dim.group for dim in dims if dim.op.index in indices and dim.group is not None
        }
        groups = {key: group for key, group in groups.items() if key not in done}
        done.update(groups)
        readers = [op for op in ops.values() if _uses(dims, op, groups)]
        losses = quantization_loss_percent(context, indices_of(readers))
        if not groups or max(losses.values(), default=0.0) < context.settings.min_gain_percent:
            continue
        candidates = _neighbours(of_the_same_width(context, tuple(groups.values())), multiples)
        best = best_resizing(context, candidates, indices_of(readers))
        if best is not None and surplus_percent(best) >= context.settings.min_gain_percent:
            yield _width_finding(rule, context, readers, tuple(groups.values()), best, losses)


def _uses(dims: Sequence[OpDim], op: Op, groups: dict[str, DimGroup]) -> bool:
    return any(dim.op.index == op.index and dim.group is not None and dim.group.id in groups for dim in dims)


def _neighbours(groups: Sequence[DimGroup], multiples: tuple[int, ...]) -> list[dict[DimGroup, int]]:
    """The next multiples below (where they cut little) and above."""
    candidates = []
    for multiple in multiples:
        below = {group: group.size // multiple * multiple for group in groups}
        below = {group: size for group, size in below.items() if size >= (1 - LARGEST_CUT) * group.size}
        above = {group: -(-group.size // multiple) * multiple for group in groups}
        above = {group: size for group, size in above.items() if size <= (1 + LARGEST_CUT) * group.size}
        candidates += [changes for changes in (below, above) if changes]
    return candidates


def _width_finding(
    rule: Rule,
    context: GraphContext,
    ops: list[Op],
    groups: tuple[DimGroup, ...],
    best: Resizing,
    losses: dict[str, float],
) -> Finding:
    first = costliest(context, ops)
    location = context.location(first)
    shares = context.share_percent(indices_of(ops))
    sizes = ", ".join(str(size) for size, _ in best.sizes[:4])
    smaller = (
        f", of which {best.flops_percent:.1f} % is work that the smaller model does not do"
        if best.flops_percent > 0.05
        else ""
    )
    return rule.finding(
        location,
        f"{sentence(layers_take(ops, 'layer', shares))}, with tiles and waves that {sizes} leaves partly "
        f"empty; {best.phrase()} {gain_phrase(best.effect)}{smaller}{advisory(context)}.",
        effect=best.effect,
        evidence={
            "sizes": [list(pair) for pair in best.sizes],
            "work_saved_percent": round(best.flops_percent, 2),
            "empty_percent": rounded(losses),
            "share_percent": rounded(shares),
        },
        fix=Fix(f"Where accuracy allows, change the width {best.phrase()}."),
        change=best.change,
        related=related_sites(
            [site for group in groups for site in group.sites],
            location,
            "this layer has the same width, which changes with it",
        ),
    )


def advisory(context: GraphContext) -> str:
    """A remark for findings if waves predict nothing on the generations of all GPUs; else ''."""
    capabilities = [context.estimate(scenario).gpu.compute_capability for scenario in context.scenarios]
    if all(capability >= (9, 0) for capability in capabilities):
        return " (advisory: on this generation, tiles and waves predict little)"
    return ""
