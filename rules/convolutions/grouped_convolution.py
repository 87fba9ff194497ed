"""Convolutions that sum over groups of channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import gcd, prod

from tclint.plugin import Change, Finding, Fix, Graph, GraphContext, GraphRule, Op, count
from tclint.plugin.graph import (
    best_option,
    by_line,
    costliest,
    efficient_multiple,
    gain_phrase,
    indices_of,
    layers_take,
    priced,
    rounded,
    sentence,
    share_finding,
)

from .dense import regrouped, ungrouped, with_fused_expansion


class GroupedConvShape(GraphRule):
    """A grouped convolution is slower than one with fewer groups.

    What it does
    Prices every grouped convolution that is not depthwise with fewer groups of the same channels, down to
    one, and reports the number of groups that gains most.

    Why it costs
    cuDNN's grouped Tensor Core kernels exist for some widths of a group and some numbers of groups, fewer of
    them for the gradients. Others run as many small products, in another memory format, or on CUDA cores: a
    dense convolution can take less time although it multiplies many times as much.

    Example
        nn.Conv2d(896, 896, 3, groups=16)     # 56 channels per group

    Use instead
        nn.Conv2d(896, 896, 3)                # more weights; it can compute all that the grouped one can

    When it does not apply
    Depthwise convolutions (one channel per group) have kernels of their own. Models whose parameters or
    FLOPs count. Where the memory format is what makes the groups slow, channels-last-loses says so too.
    """

    code = "ARC003"
    name = "grouped-conv-shape"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA cuDNN 8 Developer Guide, grouped convolutions: channels per group of the Tensor Core kernels",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if efficient_multiple(context.settings.precision) is None:
            return
        grouped = [op for op in context.graph.convolutions if _is_grouped(op)]
        for ops in by_line(grouped).values():
            if context.worth_pricing(indices_of(ops)):
                yield from self._findings(context, ops)

    def _findings(self, context: GraphContext, ops: list[Op]) -> Iterator[Finding]:
        concerned = indices_of(ops)
        best = best_option(context, priced(context, concerned, _options(ops)))
        if best is None:
            return
        groups = sorted({(op.groups, max(op.groups // best.what, 1)) for op in ops})
        changes = ", ".join(f"{present} -> {other}" for present, other in groups[:4])
        first = costliest(context, ops)
        shares = context.share_percent(concerned)
        added = context.after(best.change).graph.parameter_count - context.graph.parameter_count
        yield self.finding(
            context.location(first),
            f"{sentence(layers_take(ops, 'grouped convolution', shares))}; groups {changes} with the same "
            f"channels, {count(added)} parameters more, {gain_phrase(best.effect)}.",
            effect=best.effect,
            evidence={
                "groups": [list(pair) for pair in groups],
                "parameters_added": added,
                "share_percent": rounded(shares),
            },
            fix=Fix(
                f"Where the model may have more weights, build these convolutions with groups {changes}; a "
                "weight of fewer groups holds the old one's blocks, and zeros between them."
            ),
            related=context.related(first),
            change=best.change,
        )


def _is_grouped(op: Op) -> bool:
    source, weight = op.input("input"), op.input("weight")
    whole = source is not None and weight is not None and len(source.shape) == len(weight.shape)
    return whole and op.groups > 1 and not is_depthwise(op)


def _options(ops: list[Op]) -> Iterator[tuple[int, Change]]:
    """(number of groups merged into one, change) for each common divisor of the convolutions' groups, and for
    merging all groups."""
    common = gcd(*(op.groups for op in ops))
    times = [number for number in range(2, common + 1) if common % number == 0]
    for together in (*times, max(op.groups for op in ops)):
        yield together, Change(edit=partial(regrouped, ops=ops, times=together))


_EARLY_STRIDE = 4
"""A stage is early while its images are at least a quarter as wide as the model's: there channels are few
and positions many (Optimizing for Tensor Cores calls them memory-limited)."""


class DepthwiseConv(GraphRule):
    """Depthwise convolutions are limited by memory and leave Tensor Cores nothing to do.

    What it does
    Adds up the memory-limited depthwise convolutions whose output is at least a quarter as wide as the
    model's image, with their share of the step. Dense convolutions are priced in their place: with the
    same channels, and merged with the 1x1 convolution that widens the image before them. Reports them
    once per model, with the lines where the better of the two is predicted to gain.

    Why it costs
    A 3x3 depthwise convolution does 18 operations for each value that it reads and writes, and sums over
    no channels, so Tensor Cores have nothing to do: it costs what moving its tensors costs. Early stages
    have the largest tensors. There, a dense convolution does more arithmetic in about the time that
    moving the tensors takes.

    Example
        nn.Conv2d(32, 192, 1), nn.Conv2d(192, 192, 3, groups=192)     # at 112 x 112

    Use instead
        nn.Conv2d(32, 192, 3)                                         # one dense layer for the two

    When it does not apply
    Late stages with small images and many channels, where a dense convolution is limited by arithmetic
    and depthwise ones pay off. Models for phones, which are not built for Tensor Cores. Fixed filters (a
    blur kept in a buffer) and kernels computed from data are not layers that could be dense, and are not
    reported.
    """

    code = "ARC002"
    name = "depthwise-conv"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: in memory-limited layers prefer "
        "dense to depthwise convolutions",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if efficient_multiple(context.settings.precision) is None:
            return
        image = _image_positions(context)
        learned = {p.name for p in context.graph.parameters if not p.is_buffer}
        early = [
            op
            for op in context.graph.convolutions
            if is_depthwise(op) and _is_early(op, image) and _weight_name(op) in learned
        ]
        limited = [op for op in early if "memory" in context.limiters(op, products_only=True)]
        if not context.worth_pricing(indices_of(limited)):
            return
        parts: list[_Part] = []
        for ops in by_line(limited).values():
            best = best_option(context, priced(context, indices_of(ops), _dense(context, ops)))
            if best is not None and best.gain_percent > 0.0:  # on the mean of the GPUs
                parts.append((ops, best.what))
        if parts:
            yield self._finding(context, parts)

    def _finding(self, context: GraphContext, parts: list[_Part]) -> Finding:
        """The one finding for the model, since its layers share one design wherever they are written."""
        ops = [op for line, _ in parts for op in line]
        change = Change(edit=partial(_all_dense, parts=parts))
        effect = context.effect(indices_of(ops), change)
        instead = " or ".join(dict.fromkeys(_WORDS[edit] for _, edit in parts))
        largest = max((op.outputs[0].shape[2:] for op in ops), key=prod)
        like = "" if all(edit is ungrouped for _, edit in parts) else ", as EfficientNetV2's fused blocks do"
        return share_finding(
            self,
            context,
            ops,
            "depthwise convolution",
            f", on images of up to {'x'.join(str(size) for size in largest)}, without Tensor Cores; "
            f"{instead} {gain_phrase(effect)}",
            effect=effect,
            advice=f"Where accuracy allows, use {instead} in these early stages{like}.",
            change=change,
        )


_DenseEdit = Callable[..., Graph]
"""Takes a graph and some of its ops."""

_Part = tuple[list[Op], _DenseEdit]
"""The convolutions of one line and the edit that makes them dense."""


def _fused_or_dense(graph: Graph, ops: list[Op]) -> Graph:
    return with_fused_expansion(graph, ops, others_too=True)


_WORDS: dict[_DenseEdit, str] = {
    ungrouped: "a dense convolution of the same channels",
    with_fused_expansion: "one dense convolution for the 1x1 and the depthwise one",
    _fused_or_dense: "one dense convolution for the 1x1 and the depthwise one",
}


def _dense(context: GraphContext, ops: list[Op]) -> Iterator[tuple[_DenseEdit, Change]]:
    """Options with dense layers of the same channels, or of the channels before an expansion."""
    edits: list[_DenseEdit] = [ungrouped]
    if with_fused_expansion(context.graph, ops) != context.graph:
        edits += [with_fused_expansion, _fused_or_dense]
    for edit in edits:
        yield edit, Change(edit=partial(edit, ops=ops))


def _all_dense(graph: Graph, parts: list[_Part]) -> Graph:
    for ops, edit in parts:
        graph = edit(graph, ops)
    return graph


def _weight_name(op: Op) -> str | None:
    weight = op.input("weight")
    return None if weight is None else weight.parameter


def _image_positions(context: GraphContext) -> int:
    """The number of positions in the model's largest input image; 0 without images."""
    images = [prod(spec.shape[2:]) for spec in context.graph.inputs if len(spec.shape) in (4, 5)]
    return max(images, default=0)


def _is_early(op: Op, image_positions: int) -> bool:
    shape = op.outputs[0].shape
    if len(shape) not in (4, 5):
        return False
    reach = prod(shape[2:]) * int(_EARLY_STRIDE ** (len(shape) - 2))
    return reach >= image_positions > 0


def is_depthwise(op: Op) -> bool:
    """Whether each input channel is convolved on its own."""
    source = op.input("input")
    return op.kind == "conv" and source is not None and 1 < op.groups == source.shape[1]
