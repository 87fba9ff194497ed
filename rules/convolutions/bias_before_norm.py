"""Biases that the norm after them takes away."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial

from tclint.plugin import Change, Finding, Fix, Graph, GraphContext, GraphRule, Op, Site
from tclint.plugin.graph import (
    annotate_if_compile_fixes,
    costliest,
    gain_phrase,
    indices_of,
    layers_phrase,
    related_sites,
)

_BATCH_NORMS = frozenset({"batch_norm", "cudnn_batch_norm", "native_batch_norm", "sync_batch_norm"})


class ConvBiasBeforeBn(GraphRule):
    """A convolution or linear layer adds a bias that the batch norm after it subtracts again.

    What it does
    Finds convolutions (1-D to 3-D, transposed ones too) and linear layers with a bias whose output goes to
    a batch norm over its channels and nowhere else, in training, and prices the model without those biases.

    Why it costs
    Batch norm subtracts the mean of each channel, so a constant added to the channel changes nothing, and
    the bias never learns. Adding it reads and writes the whole output once more, and its gradient sums
    the whole output's gradient.

    Example
        nn.Sequential(nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128))

    Use instead
        nn.Sequential(nn.Conv2d(64, 128, 3, bias=False), nn.BatchNorm2d(128))

    When it does not apply
    Other norms (layer norm, group norm) and a batch norm over another dim than the layer's outputs cancel
    it only partly or not at all; an activation in between makes the bias meaningful; in inference
    the norm is folded into the convolution, bias included. `bias=True` written in the call is a choice.
    Checkpoints with the biases no longer load strictly, and their running means include the biases, which
    have to be subtracted there.
    """

    code = "ARC001"
    name = "conv-bias-before-bn"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Disable bias for convolutions directly followed by a batch "
        "norm: it has no effect there",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from annotate_if_compile_fixes(context, self._check, "fuses the addition")

    def _check(self, context: GraphContext) -> Iterator[Finding]:
        if context.settings.mode != "train":
            return
        readers = context.graph.consumers()
        layers = (*context.graph.convolutions, *(op for op in context.graph.ops if op.name == "linear"))
        useless = [op for op in layers if _is_cancelled(op, readers) and not asks_for_bias(op.construct_site)]
        if not useless or not context.worth_pricing(indices_of(useless)):
            return
        change = Change(edit=partial(without_bias, ops=useless))
        effect = context.effect(indices_of(useless), change)
        first = costliest(context, useless)
        location = context.location(first)
        kinds = {op.kind for op in useless}
        noun = "layer" if len(kinds) > 1 else "convolution" if kinds == {"conv"} else "linear layer"
        yield self.finding(
            location,
            f"The batch norm after {layers_phrase(useless, noun)} cancels the bias; bias=False "
            f"{gain_phrase(effect)}.",
            effect=effect,
            evidence={"layers": len(useless)},
            fix=Fix(f"Build these {noun}s with bias=False."),
            related=(
                *context.related(first),
                *related_sites(
                    [op.construct_site for op in useless], location, "another bias that batch norm cancels"
                ),
            ),
            identity="bias",
            change=change,
        )


def _is_cancelled(op: Op, readers: dict[int, list[Op]]) -> bool:
    if op.input("bias") is None:
        return False
    following = readers.get(op.index, [])
    if op.kind == "linear" and len(following) == 1 and following[0].kind == "view":
        # The view flattens [N, T, C] to [N * T, C].
        view = following[0]
        if len(view.outputs[0].shape) != 2 or view.outputs[0].shape[-1] != op.outputs[0].shape[-1]:
            return False
        following, op = readers.get(view.index, []), view
    # The norm does not cancel a bias if something else reads the layer's output as well.
    return len(following) == 1 and _normalises_batch(following[0], op)


def _normalises_batch(norm: Op, layer: Op) -> bool:
    if norm.name not in _BATCH_NORMS or norm.inputs[0].producer != layer.index:
        return False
    if layer.kind in ("linear", "view") and len(layer.outputs[0].shape) != 2:
        return False  # normed over dim 1, which is not the layer's outputs
    # With running statistics only (frozen norms), the mean is a constant and the bias shifts the output.
    return bool(norm.attributes.get("training", True))


def asks_for_bias(site: Site | None) -> bool:
    """Whether all calls on a line that make convolutions or linear layers pass `bias=True`."""
    if site is None:
        return False
    try:
        changed_ns = os.stat(site.path).st_mtime_ns
    except OSError:
        return False  # the graph is from another machine, or the file is a cell of a notebook
    choices = [
        explicit for first, last, explicit in _layers(site.path, changed_ns) if first <= site.line <= last
    ]
    return bool(choices) and all(choices)


@lru_cache(maxsize=64)
def _layers(path: str, _changed_ns: int) -> tuple[tuple[int, int, bool], ...]:
    """First line, last line and whether `bias=True` is written, of each call that makes such a layer."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(
        (node.lineno, node.end_lineno or node.lineno, _says_true(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func).startswith(("Conv", "LazyConv", "Linear"))
    )


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _says_true(call: ast.Call) -> bool:
    return any(
        item.arg == "bias" and isinstance(item.value, ast.Constant) and item.value.value is True
        for item in call.keywords
    )


def without_bias(graph: Graph, ops: Iterable[Op]) -> Graph:
    """The layers built with bias=False."""
    changed = {}
    for op in (graph.ops[op.index] for op in ops):
        kept = [(spec, name) for spec, name in zip(op.inputs, op.input_names, strict=True) if name != "bias"]
        changed[op.index] = replace(
            op, inputs=tuple(spec for spec, _ in kept), input_names=tuple(name for _, name in kept)
        )
    return graph.with_ops(changed)
