"""Finds widths that Tensor Cores cannot use at full speed, grouped by what would be fixed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tclint.analysis.attention import attention_blocks
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.layers import (
    OpDim,
    costliest,
    indices_of,
    layers_take,
    related_sites,
    rounded,
    width_dims,
)
from tclint.analysis.widths.alignment import efficient_multiple, is_misaligned
from tclint.analysis.widths.bounds import alignment_gain_percent
from tclint.analysis.widths.interfaces import given_widths, is_given
from tclint.analysis.widths.padding import Padding, best_padding, sizes_phrase
from tclint.config.precisions import PRECISION_FACTS
from tclint.core.finding import Effect, Finding, Fix
from tclint.core.units import count
from tclint.graph.dims.coupled import DimGroup
from tclint.graph.ops import Op

SMALLEST_PADDED_OUTPUT = 64
"""Fewer outputs of a model are an interface (actions, classes or coordinates) that nobody pads."""

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MisalignedLayers:
    """Layers built at one line (or coupled to those), and their misaligned dims."""

    kind: str
    """The kind of the ops that cost most: 'linear', 'matmul', 'conv' or 'rnn'."""
    ops: tuple[Op, ...]
    dims: tuple[OpDim, ...]

    @property
    def groups(self) -> tuple[DimGroup, ...]:
        """The groups that would have to be resized, without repetition."""
        return tuple({dim.group.id: dim.group for dim in self.dims if dim.group is not None}.values())


def misaligned_layers(context: GraphContext) -> tuple[MisalignedLayers, ...]:
    """All misaligned widths of the model, largest share of the step first.

    Left out, because other rules report them or because they are interfaces and not choices: model inputs,
    batch and tokens, vocabularies, attention's own products, grouped convolutions, dims of 1 to 4.
    """
    precision = context.settings.precision
    if efficient_multiple(precision) is None:
        return ()
    dims = [
        dim
        for op in _ordinary_ops(context)
        for dim in width_dims(op, context.dims)
        if is_misaligned(dim.size, precision) and _is_choice(dim) and not is_given(dim, context)
    ]
    vocabularies = {head.group.id for head in context.vocabulary_heads if head.group is not None}
    dims = [dim for dim in dims if dim.group is None or dim.group.id not in vocabularies]
    found = [_layers(context, part) for part in _by_line(context, _components(dims))]
    return tuple(sorted(found, key=lambda layers: layers.ops[0].index))


def misalignment_findings(rule: GraphRule, context: GraphContext, kinds: frozenset[str]) -> Iterator[Finding]:
    """One finding for each of `misaligned_layers` of these kinds that can gain enough to be worth pricing."""
    multiple = efficient_multiple(context.settings.precision)
    for layers in context.once(misaligned_layers):
        concerned = indices_of(layers.ops)
        if multiple is None or layers.kind not in kinds or not context.worth_pricing(concerned):
            continue
        # Half of the listing limit is enough here: padding can gain a little more than the products alone,
        # with the copies of padded channels around them.
        bound = alignment_gain_percent(context, concerned, (multiple,))
        most, least = max(bound.values()), context.settings.min_gain_percent
        if most < least / 2:
            continue
        inputs = context.once(given_widths)
        given = {op.index: inputs[op.index].size for op in layers.ops if op.index in inputs}
        outcome = best_padding(context, layers.groups, concerned, given, may_shrink=True)
        if isinstance(outcome, Padding) or most >= least:
            yield _finding(rule, context, layers, bound, outcome)


def _ordinary_ops(context: GraphContext) -> Iterator[Op]:
    attention = {op.index for block in attention_blocks(context.graph) for op in block.ops}
    for op in context.graph.products:
        if op.index not in attention and op.groups == 1:
            yield op


def _is_choice(dim: OpDim) -> bool:
    """Whether the size is a width that the author chose and could change."""
    group = dim.group
    if group is None:
        # A product of two activations belongs to no layer: its dims are the data's.
        return dim.op.kind != "matmul"
    if group.is_batch or group.fixed:
        return False
    if group.unresolved and dim.op.kind == "matmul" and not any(spec.parameter for spec in dim.op.inputs):
        return False  # the origin of the size is unknown; it may be the length of a text
    # If a dim could not be followed to the end, the model may return it.
    return dim.size >= SMALLEST_PADDED_OUTPUT or not (group.is_output or group.unresolved)


def _components(dims: Iterable[OpDim]) -> list[list[OpDim]]:
    """The dims grouped by the ops they share; a product is as fast as its worst dim, so they are fixed
    together."""
    parent: dict[_Key, _Key] = {}

    def find(key: _Key) -> _Key:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    keyed: list[tuple[_Key, OpDim]] = []
    first_of_op: dict[int, _Key] = {}
    for dim in dims:
        key = ("group", dim.group.id) if dim.group is not None else (str(dim.op.index), dim.role)
        parent.setdefault(key, key)
        keyed.append((key, dim))
        other = first_of_op.setdefault(dim.op.index, key)
        parent[find(key)] = find(other)
    components: dict[_Key, list[OpDim]] = {}
    for key, dim in keyed:
        components.setdefault(find(key), []).append(dim)
    return list(components.values())


def _by_line(context: GraphContext, components: list[list[OpDim]]) -> list[list[OpDim]]:
    """The components, with those whose costliest layers come from one line merged into one finding."""
    joined: dict[tuple[str, int], list[OpDim]] = {}
    for part in components:
        joined.setdefault(costliest(context, [dim.op for dim in part]).line, []).extend(part)
    return list(joined.values())


def _layers(context: GraphContext, dims: list[OpDim]) -> MisalignedLayers:
    ops = tuple({dim.op.index: dim.op for dim in dims}.values())
    time_us: dict[str, float] = {}
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        for op in ops:
            time_us[op.kind] = time_us.get(op.kind, 0.0) + estimate.time_of_us((op.index,))
    return MisalignedLayers(max(time_us, key=lambda kind: time_us[kind]), ops, tuple(dims))


_NOUNS = {
    "linear": "linear layer",
    "matmul": "matrix product",
    "conv": "convolution",
    "rnn": "recurrent layer",
}


def _finding(
    rule: GraphRule,
    context: GraphContext,
    layers: MisalignedLayers,
    bound: dict[str, float],
    outcome: Padding | Effect,
) -> Finding:
    concerned = indices_of(layers.ops)
    first = costliest(context, layers.ops)
    location = context.location(first)
    shares = context.share_percent(concerned)
    multiple = efficient_multiple(context.settings.precision)
    noun = _NOUNS[layers.kind] if all(op.kind == layers.kind for op in layers.ops) else "layer"
    units = PRECISION_FACTS[context.settings.precision].unit
    message = (
        f"{_widths(layers.dims, multiple)}, which {units} Tensor Cores need for full speed: "
        f"{layers_take(layers.ops, noun, shares)}"
    )
    evidence: dict[str, Any] = {
        "sizes": sorted({dim.size for dim in layers.dims}),
        "multiple": multiple,
        "layers": len(layers.ops),
        "share_percent": rounded(shares),
    }
    sites = [site for group in layers.groups for site in group.sites]
    related = (
        *context.related(first),
        *related_sites(sites, location, "this layer has the same width, which changes with it"),
    )
    if not isinstance(outcome, Padding):
        return rule.finding(
            location,
            f"{message}; at most {max(bound.values()):.1f} % of the step is lost to misalignment.",
            effect=outcome,
            evidence=evidence | {"gain_is_at_most_percent": rounded(bound)},
            fix=Fix(f"Choose sizes that are multiples of {multiple} where this width is defined."),
            related=related,
            level="info",
        )
    zeros = f" and its input with zeros, {sizes_phrase(outcome.inputs)}," if outcome.inputs else ""
    return rule.finding(
        location,
        f"{message}; {_way(outcome)}{zeros} {outcome.gain_phrase()}.",
        effect=outcome.effect,
        evidence=evidence | outcome.evidence(),
        fix=Fix(
            _advice(layers, outcome)
            + (f" Append zeros to the data: {sizes_phrase(outcome.inputs)}." if outcome.inputs else "")
        ),
        related=related,
        change=outcome.change,
    )


def _way(padding: Padding) -> str:
    """'padding 770 -> 800'; '770 -> 768, another architecture with 1.2 M parameters less,'."""
    if padding.parameters_added is None:
        return f"padding {padding.phrase()}"
    added = padding.parameters_added
    more = (
        f"{count(abs(added))} parameters {'more' if added > 0 else 'less'}" if added else "as many parameters"
    )
    return f"{padding.phrase()}, another architecture with {more},"


def _widths(dims: Iterable[OpDim], multiple: int | None) -> str:
    """'out_features 2730 is not a multiple of 8', 'The channels 58, 116 are not multiples of 8'."""
    roles = {dim.role for dim in dims}
    sizes = sorted({dim.size for dim in dims})
    listed = ", ".join(str(size) for size in sizes[:4]) + (", ..." if len(sizes) > 4 else "")
    if len(roles) == 1 and len(sizes) == 1:
        return f"{roles.pop()} {listed} is not a multiple of {multiple}"
    noun = "channels" if all(role.endswith("channels") for role in roles) else "width"
    if noun == "width" and len(sizes) == 1:
        return f"The width {listed} is not a multiple of {multiple}"
    return f"The {noun.removesuffix('s')}s {listed} are not multiples of {multiple}"


def _advice(layers: MisalignedLayers, padding: Padding) -> str:
    if all(group.is_output for group in layers.groups) and all(
        d.role.startswith("out_") for d in layers.dims
    ):
        return (
            f"Give the last layer {padding.phrase()} outputs and leave the added ones out of the loss "
            "(slice the logits, or mask them with -inf)."
        )
    lines = len({(site.path, site.line) for group in layers.groups for site in group.sites})
    where = f" where it is set, for the layers of all {lines} lines listed" if lines > 1 else ""
    instead = ""
    if padding.instead is not None:
        gains = padding.instead.gain_phrase()
        instead = f" Padding {padding.instead.phrase()}, which keeps the architecture, {gains}."
    change = f"Change the width {padding.phrase()}{where}"
    return f"{change}; weights trained with the old width no longer fit.{instead}"
