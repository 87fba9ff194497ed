"""Widths that are given to a layer and not chosen: input features, and concatenations of them.

Their size cannot change, but zeros can be appended where the data is made: a layer with a few more input
features computes the same if the added inputs are zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.layers import (
    OpDim,
    by_line,
    costliest,
    gain_phrase,
    indices_of,
    layers_take,
    related_sites,
    rounded,
    width_dims,
)
from tclint.analysis.options import best_option, priced
from tclint.analysis.widths.alignment import efficient_multiple, is_misaligned, padding_multiples, round_up
from tclint.analysis.widths.bounds import alignment_gain_percent
from tclint.core.finding import Finding, Fix
from tclint.graph.dims.coupled import DimGroup
from tclint.graph.ops import Graph, Op, TensorSpec

_ROLES = {"linear": "in_features", "conv": "in_channels", "rnn": "input_size"}
_NOUNS = {"linear": "linear layer", "conv": "convolution", "rnn": "recurrent layer"}
_WEIGHTS = ("weight", "params[0]", "w_ih")
"""Names of the matrix that multiplies the input, [outputs, inputs]; for a reversed direction it is
params[4]."""


def is_given(dim: OpDim, context: GraphContext) -> bool:
    """Whether a layer's input width is the data's, or a sum of parts none of which can be chosen."""
    group = dim.group
    if group is None or group.is_batch or dim.role not in _ROLES.values():
        return False
    return group.fixed is not None or _is_rigid_sum(group, context)


def _is_rigid_sum(group: DimGroup, context: GraphContext) -> bool:
    if not group.composite or group.unresolved or "+" not in group.id:
        return False
    multiple = efficient_multiple(context.settings.precision)
    return multiple is not None and context.dims.next_multiple(group, multiple) is None


def given_widths(context: GraphContext) -> dict[int, OpDim]:
    """Op index -> the layer's misaligned input width, if it is the data's and zeros could be appended."""
    found: dict[int, OpDim] = {}
    for op in context.graph.products:
        if op.kind not in _ROLES or op.groups != 1 or "transpose" in op.name:
            continue
        for dim in width_dims(op, context.dims):
            misaligned = is_misaligned(dim.size, context.settings.precision)
            if misaligned and is_given(dim, context) and _source(op, context.graph) is not None:
                found[op.index] = dim
    return found


def interface_findings(rule: GraphRule, context: GraphContext, kind: str) -> Iterator[Finding]:
    """One finding for each line whose layers read a misaligned given width.

    Args:
        rule: the rule of the findings.
        context: the model.
        kind: the kind of the layers: 'linear', 'conv' or 'rnn'.
    """
    multiple = efficient_multiple(context.settings.precision)
    if multiple is None:
        return
    given = context.once(given_widths)
    for ops in by_line(dim.op for dim in given.values() if dim.op.kind == kind).values():
        concerned = indices_of(ops)
        if not context.worth_pricing(concerned):
            continue
        bound = alignment_gain_percent(context, concerned, (multiple,))
        if max(bound.values()) >= context.settings.min_gain_percent / 2:
            yield from _finding(rule, context, ops, [given[op.index] for op in ops])


def _finding(
    rule: GraphRule, context: GraphContext, ops: Sequence[Op], dims: Sequence[OpDim]
) -> Iterator[Finding]:
    concerned = indices_of(ops)
    best = best_option(context, priced(context, concerned, _widths(context, dims)))
    if best is None:
        return
    sizes, effect = best.what, best.effect
    first = costliest(context, ops)
    location = context.location(first)
    pairs = sorted({(dim.size, sizes[dim.op.index]) for dim in dims})
    shown = ", ".join(f"{present} -> {padded}" for present, padded in pairs[:4])
    layers = layers_take(ops, _NOUNS[first.kind], context.share_percent(concerned))
    role = dims[0].role
    is_sum = any(_source(op, context.graph) == "cat" for op in ops)
    whose = "the width of a concatenation" if is_sum else "the data's own width"
    where = (
        "append a block of zeros to the concatenation" if is_sum else "append zeros where the data is made"
    )
    yield rule.finding(
        location,
        f"{role} {', '.join(str(size) for size, _ in pairs[:4])} is {whose}, not a multiple of "
        f"{efficient_multiple(context.settings.precision)}: {layers}; padding the input with zeros {shown} "
        f"{gain_phrase(effect)}.",
        effect=effect,
        evidence={
            "padding": [list(pair) for pair in pairs],
            "share_percent": rounded(context.share_percent(concerned)),
            "input": True,
        },
        fix=Fix(
            f"Keep the data as it is and {where}, {shown}, with {role} to match; pretrained weights get zero "
            "columns."
        ),
        related=(
            *context.related(first),
            *related_sites([op.construct_site for op in ops], location, "reads the same input"),
        ),
        identity=f"input {first.module_path}",
        change=best.change,
        level="info",
    )


def _widths(context: GraphContext, dims: Sequence[OpDim]) -> Iterator[tuple[dict[int, int], Change]]:
    """(op index -> padded width, change that makes it) for each way to pad."""
    for position, multiple in enumerate(padding_multiples(context.settings.precision)):
        sizes = {dim.op.index: round_up(dim.size, multiple) for dim in dims}
        if position and any(sizes[dim.op.index] > 1.5 * dim.size for dim in dims):
            break
        yield sizes, wider_inputs(sizes)


def wider_inputs(sizes: Mapping[int, int]) -> Change:
    """The change that gives layers wider inputs; sizes by op index."""
    return Change(edit=partial(with_input_widths, sizes=sizes))


def with_input_widths(graph: Graph, sizes: Mapping[int, int]) -> Graph:
    """The graph in which layers, by op index, read wider inputs and concatenations of these are as wide."""
    for index, size in sizes.items():
        op = graph.ops[index]
        if op.kind == "conv":
            graph = with_input_channels(graph, [op], size)
            continue
        source = op.inputs[0]
        wider = source.resized(len(source.shape) - 1, size)
        others = zip(op.inputs[1:], op.input_names[1:], strict=True)
        inputs = (wider, *(_wider_weight(spec, name, size, source.shape[-1]) for spec, name in others))
        changed = {index: replace(op, inputs=inputs)}
        producer = None if source.producer is None else graph.ops[source.producer]
        if producer is not None and producer.kind == "copy" and producer.outputs:
            output = producer.outputs[0]
            outputs = (output.resized(len(output.shape) - 1, size), *producer.outputs[1:])
            changed[producer.index] = replace(producer, outputs=outputs)
        graph = graph.with_ops(changed)
    return graph


_PASSED_THROUGH = frozenset({"view", "copy"})
_MOST_STEPS = 8


def _source(op: Op, graph: Graph) -> str | None:
    """The maker of the layer's input, 'input' or 'cat', if zeros can be appended to it; else None.

    Views and copies may be between the data and a layer. Zeros could be appended to the result of an earlier
    layer only by a further copy.
    """
    spec = op.inputs[op.input_names.index("input") if "input" in op.input_names else 0]
    for _ in range(_MOST_STEPS):
        if spec.producer is None:
            return None if spec.parameter is not None else "input"
        producer = graph.ops[spec.producer]
        if producer.name in ("cat", "concat", "concatenate"):
            return "cat"
        if producer.kind not in _PASSED_THROUGH or not producer.inputs:
            return None
        spec = producer.inputs[0]
    return None


def _wider_weight(spec: TensorSpec, name: str, size: int, present: int) -> TensorSpec:
    is_weight = name in _WEIGHTS or (name == "params[4]" and spec.shape[-1:] == (present,))
    return spec.resized(1, size) if is_weight and len(spec.shape) == 2 else spec


def with_input_channels(graph: Graph, ops: Iterable[Op], channels: int) -> Graph:
    """The (ungrouped, not transposed) convolutions reading `channels` input channels."""
    changed = {}
    for op in (graph.ops[op.index] for op in ops):
        source, weight = op.input("input"), op.input("weight")
        if source is None or weight is None:
            continue
        wider = op.with_input("input", source.resized(1, channels))
        changed[op.index] = wider.with_input("weight", weight.resized(1, channels))
    return graph.with_ops(changed)
