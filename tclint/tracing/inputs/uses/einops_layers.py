"""Inputs of einops' Rearrange and Reduce layers: their pattern names every dim of what they take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from torch import nn

from tclint.tracing.inputs.stated_sizes import FRAMES, IMAGE_SIZE, image_sizes, sequence_length

# Taken for axes that nothing else states: colours, and features of no known width.
_CHANNELS = 3
_WIDTH = 64

_Groups = list[list[str]]


def is_einops(layer: nn.Module) -> bool:
    """Whether the layer is a Rearrange or Reduce of einops whose pattern can be read."""
    return (
        type(layer).__module__.startswith("einops.")
        and isinstance(getattr(layer, "pattern", None), str)
        and isinstance(getattr(layer, "axes_lengths", None), Mapping)
    )


def wanted_rank(layer: nn.Module) -> int | None:
    """How many dims the layer's pattern wants; None where it leaves that open."""
    groups = _groups(_sides(layer)[0])
    return None if groups is None else len(groups)


def shapes_for(layer: nn.Module, model: nn.Module, batch: int) -> Iterator[tuple[int, ...]]:
    """Shapes that the pattern takes, likeliest first; none where it has an ellipsis."""
    left, right = (_groups(side) for side in _sides(layer))
    if left is None or right is None:
        return
    known = {str(name): int(size) for name, size in getattr(layer, "axes_lengths", {}).items()}
    _add_width(known, right, _width_behind(layer, model))
    for side in (*image_sizes(model)[:1], (IMAGE_SIZE, IMAGE_SIZE), (256, 256)):
        yield tuple(_sizes(left, known, side, batch, model))


def _sides(layer: Any) -> tuple[str, str]:
    left, _, right = layer.pattern.partition("->")
    return left, right


def _groups(side: str) -> _Groups | None:
    """'b (h p) c' as [['b'], ['h', 'p'], ['c']]; None for a side with an ellipsis."""
    if "..." in side or "…" in side:
        return None
    return [found.strip("()").split() for found in re.findall(r"\([^)]*\)|\w+", side)]


def _width_behind(layer: nn.Module, model: nn.Module) -> int | None:
    """The width that the layer behind this one in a Sequential takes."""
    for parent in model.modules():
        if isinstance(parent, nn.Sequential):
            for one, following in pairwise(parent):
                if one is layer:
                    if isinstance(following, nn.LayerNorm):
                        return int(following.normalized_shape[-1])
                    return getattr(following, "in_features", None)
    return None


def _add_width(known: dict[str, int], right: _Groups, width: int | None) -> None:
    """The one open axis among those that become the width follows from it."""
    if not right or not width:
        return
    missing = [name for name in right[-1] if name not in known and not name.isdigit()]
    rest = math.prod(known.get(name, 1) for name in right[-1])
    if len(missing) == 1 and width % rest == 0:
        known[missing[0]] = width // rest


def _sizes(
    left: _Groups, known: Mapping[str, int], side: tuple[int, int], batch: int, model: nn.Module
) -> Iterator[int]:
    spatial = 0
    for position, group in enumerate(left):
        fixed = math.prod(int(name) if name.isdigit() else known.get(name, 1) for name in group)
        is_open = any(name not in known and not name.isdigit() for name in group)
        if not is_open:
            yield fixed
            continue
        first = next(name for name in group if name not in known).lower()
        if position == 0:
            goal = batch
        elif re.fullmatch(r"c|ch|chans?|channels?|c_?in|in_?c(hannels)?", first):
            goal = _CHANNELS
        elif re.fullmatch(r"t|f|frames?|time|d(epth)?", first) and len(left) == 5:
            goal = FRAMES
        elif len(left) >= 4 and position >= len(left) - 3:
            goal = side[min(spatial, 1)]
            spatial += 1
        elif position == len(left) - 1:
            goal = _WIDTH
        else:
            goal = sequence_length(model)
        yield fixed * max(1, goal // fixed)
