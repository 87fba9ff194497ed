"""Finds where channels_last ends inside a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tclint.plugin import Change, Graph, GraphContext, Op
from tclint.plugin.graph import CHANNELS_LAST, apply_layout

_MOST_STEPS = 200
"""The most ops that are followed from a break to the next convolution."""


def runs_channels_last(context: GraphContext) -> bool:
    """Whether convolutions of the model read NHWC images, as traced or as the settings say."""
    if context.settings.layout != "as_traced":
        return context.settings.layout == "channels_last"
    return any(_is_nhwc(op, 0) for op in context.graph.ops if op.kind == "conv" and op.inputs)


def layout_breaks(context: GraphContext) -> tuple[Op, ...]:
    """Ops that read an NHWC image and write one in NCHW that a convolution reads later."""
    if not runs_channels_last(context):
        return ()
    return breaks_in(apply_layout(context.graph, context.settings.layout))


def breaks_in(graph: Graph) -> tuple[Op, ...]:
    """As `layout_breaks`, for a graph whose strides are those at run time."""
    readers = graph.consumers()
    found = []
    for op in graph.ops:
        # Copies of a constant or a mask are no images.
        if op.kind in ("conv", "linear", "matmul") or not op.inputs or not op.outputs:
            continue
        source = _image_of(op)
        if source is None or _ends_the_image(op) or not _reaches_convolution(op, readers):
            continue
        found.append(replace(op))
    return tuple(found)


def kept_format(ops: Sequence[Op]) -> Change:
    """The change that lets these ops of a channels_last step keep the format.

    A separate contiguous() is left out; all other ops are taken to run as before, on NHWC images.
    """
    return Change(
        edit=partial(_with_format_kept, indices=frozenset(op.index for op in ops)),
        settings={"layout": "as_traced"},
        presupposes=CHANNELS_LAST.settings,
    )


def _with_format_kept(graph: Graph, indices: frozenset[int]) -> Graph:
    kept = apply_layout(graph, "channels_last", indices)
    left_out = (graph.ops[index] for index in indices if graph.ops[index].name in ("contiguous", "clone"))
    return kept.with_ops(
        {op.index: replace(op.emptied(), outputs=kept.ops[op.index].outputs) for op in left_out}
    )


def _is_nhwc(op: Op, position: int) -> bool:
    return op.inputs[position].memory_format.startswith("channels_last")


def _image_of(op: Op) -> int | None:
    """The position of an NHWC image that the op reads, if its output is row-major."""
    output = op.outputs[0]
    if op.kind == "view" or output.memory_format != "contiguous" or output.numel < 2:
        return None
    for position, spec in enumerate(op.inputs):
        same_size = spec.numel == output.numel
        nhwc = spec.memory_format.startswith("channels_last")
        # [N, HW, C] seen as [N, C, HW]: an image without its spatial dims.
        flat = len(spec.shape) == 3 and spec.memory_format == "strided" and op.kind == "copy"
        if same_size and (nhwc or flat) and max(spec.shape[1:], default=1) > 1:
            return position
    return None


def _ends_the_image(op: Op) -> bool:
    spatial = op.outputs[0].shape[2:]
    return bool(spatial) and max(spatial) == 1


def _reaches_convolution(op: Op, readers: dict[int, list[Op]]) -> bool:
    """Whether a convolution reads the op's result, or something made from it, while it is still row-major."""
    waiting, seen = [op], {op.index}
    for _ in range(_MOST_STEPS):
        if not waiting:
            return False
        for reader in readers.get(waiting.pop(0).index, ()):
            if reader.kind == "conv":
                return True
            keeps = reader.kind in ("elementwise", "norm", "pool", "view", "copy")
            if keeps and reader.index not in seen and reader.outputs:
                seen.add(reader.index)
                waiting.append(reader)
    return False
