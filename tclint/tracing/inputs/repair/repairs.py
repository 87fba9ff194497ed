"""Other inputs for a model whose forward failed on the inferred ones, made from what the failure tells."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import torch
from torch import nn

from tclint.graph.ops import Assumption
from tclint.tracing.inputs.given import ADVICE, CallInputs, described
from tclint.tracing.inputs.guesses.inference import CORA, guesses_for
from tclint.tracing.inputs.guesses.named_inputs import AUDIO_SAMPLES, is_mask
from tclint.tracing.inputs.repair.clues import Clues, RankClash, SizeClash
from tclint.tracing.inputs.repair.slots import Change, Slot, exchanged, like, permuted, slots_of, with_size
from tclint.tracing.inputs.stated_sizes import (
    FRAMES,
    IMAGE_SIZE,
    OTHER_IMAGE_SIZES,
    SIGNAL_LENGTH,
    image_sizes,
    sequence_length,
)
from tclint.tracing.session.trace import argument_names

_LISTED = 2
"""Tensors in a list that is asked for instead of one: the fewest that are a list."""
_MAX_TIMES = 4
"""How often a model is taken to join a tensor with itself."""
_CUSTOMARY = (IMAGE_SIZE, *OTHER_IMAGE_SIZES, 80, 84, 160)
"""Sides: those that are tried, bins of mel spectrograms, Atari's frames, and MobileNets' small images."""
_EXTRA_TOKENS = (0, 1, 2)
"""A class token, a distillation token."""
_MOST_DIMS = 6


def proposals(tried: CallInputs, clues: Clues, model: nn.Module, first: CallInputs) -> Iterator[CallInputs]:
    """Inputs that differ from `tried` as the clues suggest, likeliest first.

    Args:
        first: the inputs that were tried first, with what was assumed about the model.
    """
    for change in _changes(slots_of(tried, model), clues, model):
        args, kwargs = exchanged(tried, change)
        named = (*zip(argument_names(model, len(args)), args, strict=True), *kwargs.items())
        listed = ", ".join(f"{name} = {described(value)}" for name, value in named)
        what = f"{'input' if len(named) == 1 else 'inputs'} {listed}, by trying until the forward ran{ADVICE}"
        # The last assumption is the one about inputs.
        assumptions = (*first.assumptions[:-1], Assumption(what))
        yield dataclasses.replace(
            tried, args=args, kwargs=kwargs, assumptions=assumptions, basis="repair", alternatives=()
        )


def _changes(slots: list[Slot], clues: Clues, model: nn.Module) -> Iterator[Change]:
    if clues.integers is not None:
        for slot in _among(slots, clues.integers):
            if slot.tensor.is_floating_point():
                yield {slot.place: like(slot.tensor, dtype=torch.int64)}
    if clues.is_list:
        for slot in slots:
            if slot.tensor.dim() > 1:
                yield {slot.place: [like(slot.tensor, shape=slot.tensor.shape[1:]) for _ in range(_LISTED)]}
    if clues.parts:
        for slot in slots:
            if isinstance(slot.place, int | str):
                yield {slot.place: [like(slot.tensor) for _ in range(clues.parts)]}
    if clues.compared is not None and clues.compared.dim():
        for name in clues.missing:
            yield {name: _target(clues.compared, clues.has_classes)}
    yield from _added(slots, clues.missing, model)
    if clues.are_nodes:
        yield {
            slot.place: like(slot.tensor, shape=(2, CORA[1]))
            if slot.tensor.dtype == torch.int64 and slot.tensor.dim() == 2
            else with_size(slot.tensor, {0: CORA[0]})
            for slot in slots
            if slot.tensor.dim()
        }
    if clues.swapped:
        yield {slot.place: permuted(slot.tensor, 0, 1) for slot in slots if slot.tensor.dim() > 1}
    if clues.is_small:
        for slot in slots:
            if axes := _spatial_axes(slot.tensor):
                yield _with_twins(slot, {axis: 2 * slot.tensor.shape[axis] for axis in axes}, slots)
    yield from _of_other_shapes(slots, clues, model)
    yield from _added(slots, clues.unused, model)


def _of_other_shapes(slots: list[Slot], clues: Clues, model: nn.Module) -> Iterator[Change]:
    for rank in clues.ranks:
        if rank.is_likely:
            yield from _reshaped(slots, rank, model)
    for clash in clues.sizes:
        yield from _resized(slots, clash)
    for rank in clues.ranks:
        yield from _reshaped(slots, rank, model)
    for clash in clues.sizes:  # nodes of a graph, or a state, that the model holds
        for slot in _among(slots, clash.sources):
            if slot.tensor.dim() and slot.tensor.shape[0] == clash.have:
                yield {slot.place: with_size(slot.tensor, {0: clash.want})}
    if clues.sizes:
        for slot in slots:
            if slot.tensor.dim() == 3:
                yield {slot.place: permuted(slot.tensor, 1, 2)}


def _target(compared: torch.Tensor, has_classes: bool) -> torch.Tensor:
    """What a loss compares with: a class in place of the scores of all, or as many values."""
    shape = (compared.shape[0], *compared.shape[2:]) if has_classes else compared.shape
    return torch.empty(shape, dtype=torch.int64 if has_classes else torch.float32, device="meta")


def _added(slots: list[Slot], names: list[str], model: nn.Module) -> Iterator[Change]:
    for name in names:
        if slots and all(slot.name != name for slot in slots):
            for value in guesses_for(name, slots[0].tensor, model):
                yield {name: value}


# ---------------------------------------------------------------- sizes


def _resized(slots: list[Slot], clash: SizeClash) -> Iterator[Change]:
    chosen = _among(slots, clash.sources)
    # Sequences that belong together, such as words and their mask, have one length.
    together = {
        slot.place: with_size(slot.tensor, dict.fromkeys(axes, clash.want))
        for slot in slots
        if (axes := _axes_of(slot, clash.have))
    }
    if len(together) > 1 and any(slot.place in together for slot in chosen):
        yield together
    # What is joined before the layer has its width together.
    for axis in range(1, min((slot.tensor.dim() for slot in chosen), default=0)):
        share, rest = divmod(clash.want, len(chosen))
        if len(chosen) > 1 and share and sum(slot.tensor.shape[axis] for slot in chosen) == clash.have:
            sizes = [share + rest, *[share] * (len(chosen) - 1)]
            pairs = zip(chosen, sizes, strict=True)
            yield {slot.place: with_size(slot.tensor, {axis: size}) for slot, size in pairs}
    for slot in chosen:
        have, want = _axes_of(slot, clash.have), _axes_of(slot, clash.want)
        for one, other in itertools.product(have, want):
            yield {slot.place: permuted(slot.tensor, one, other)}
        for axis in have:
            yield {slot.place: with_size(slot.tensor, {axis: clash.want})}
        # What is repeated or joined with itself before the layer: neighbours beside points.
        for axis, size in enumerate(slot.tensor.shape[1:], 1):
            times = clash.have // size
            if 1 < times <= _MAX_TIMES and clash.have == times * size and clash.want % times == 0:
                yield {slot.place: with_size(slot.tensor, {axis: clash.want // times})}
    for slot in chosen:
        yield from _scaled(slot, clash, slots)
    for slot in chosen:  # a part of what was joined is larger or smaller by the difference
        rank = slot.tensor.dim()
        axis = rank - 3 if rank >= 4 else rank - 1
        size = slot.tensor.shape[axis] + clash.want - clash.have if axis > 0 else 0
        if size > 0:
            yield {slot.place: with_size(slot.tensor, {axis: size})}


def _axes_of(slot: Slot, size: int) -> list[int]:
    return [axis for axis in range(1, slot.tensor.dim()) if slot.tensor.shape[axis] == size]


def _scaled(slot: Slot, clash: SizeClash, slots: list[Slot]) -> Iterator[Change]:
    """Another image size or length, so that a feature map has as many elements as a layer wants."""
    axes = _spatial_axes(slot.tensor)
    if not axes:
        return
    for extra in _EXTRA_TOKENS:
        have, want = clash.have - extra, clash.want - extra
        ratio = (want / have) ** (1 / len(axes)) if have > 0 and want > 0 else 0.0
        sizes = {axis: slot.tensor.shape[axis] * ratio for axis in axes}
        if ratio and all(math.isclose(size, round(size)) for size in sizes.values()):
            yield _with_twins(slot, {axis: round(size) for axis, size in sizes.items()}, slots)
    near = slot.tensor.shape[-1] * (clash.want / max(clash.have, 1)) ** (1 / len(axes))
    for side in sorted(_CUSTOMARY, key=lambda side: abs(side - near))[:2]:
        yield _with_twins(slot, dict.fromkeys(axes, side), slots)


def _spatial_axes(tensor: torch.Tensor) -> tuple[int, ...]:
    rank = tensor.dim()
    if rank >= 4:
        return rank - 2, rank - 1
    return (rank - 1,) if rank in (2, 3) else ()


def _with_twins(slot: Slot, sizes: dict[int, int], slots: list[Slot]) -> Change:
    """Resize a tensor, and the other inputs of its shape with it."""
    twins = (other for other in slots if other.tensor.shape == slot.tensor.shape)
    return {other.place: with_size(other.tensor, sizes) for other in twins}


# ---------------------------------------------------------------- ranks


def _reshaped(slots: list[Slot], clash: RankClash, model: nn.Module) -> Iterator[Change]:
    for slot in _among(slots, clash.sources):
        rank = slot.tensor.dim() + clash.more
        for shape in _shapes(slot.tensor, rank, model):
            made = like(slot.tensor, shape=shape)
            masks = [other for other in slots if is_mask(other.name) and other.tensor.dim() > 2]
            if rank == 3 and slot not in masks and masks:
                # Taken for an image, and its mask for an image's; that of a sequence has its steps.
                steps = {mask.place: torch.ones(shape[:2], dtype=torch.bool) for mask in masks}
                yield {slot.place: made, **steps}
            if alike := [other for other in slots if _are_alike(slot.tensor, other.tensor)]:
                # Words and what is told of each have one length.
                yield {other.place: like(other.tensor, shape=shape) for other in alike}
            yield {slot.place: made}


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and not (one.is_floating_point() or other.is_floating_point())


def _shapes(tensor: torch.Tensor, rank: int, model: nn.Module) -> Iterator[tuple[int, ...]]:
    shape, length = tuple(tensor.shape), sequence_length(model)
    more = rank - len(shape)
    if not shape or not more or not 1 <= rank <= _MOST_DIMS:
        return
    if more < 0:
        if len(shape) == 4 and rank == 3 and shape[1] > 4:
            yield (shape[0], shape[2], shape[1])
        yield (shape[0], *shape[len(shape) - rank + 1 :])
        if len(shape) == 4 and rank == 3:  # no picture but a signal, or points
            yield (*shape[:2], AUDIO_SAMPLES if shape[1] == 1 else SIGNAL_LENGTH)
        elif rank > 1:
            yield shape[:rank]
    elif not tensor.is_floating_point():
        yield (*shape, *([length] if len(shape) == 1 else [4]), *([4] * (more - 1)))
    elif len(shape) == 2 and rank == 3:
        # Features come in steps; what is too long to be features is a signal, which has channels.
        steps, channel = (shape[0], length, shape[1]), (shape[0], 1, shape[1])
        yield from (channel, steps) if shape[1] >= SIGNAL_LENGTH else (steps, channel)
        yield (*shape, length)
    elif len(shape) == 2 and rank in (4, 5):
        side = next(iter(image_sizes(model)), (IMAGE_SIZE, IMAGE_SIZE))
        for channels in (3, 1):
            yield (shape[0], *([FRAMES] if rank == 5 else []), channels, *side)
    elif len(shape) == 1:
        yield (shape[0], *([length] * more))
    else:
        yield (shape[0], *([FRAMES] * more), *shape[1:])
        yield (shape[0], *([1] * more), *shape[1:])
        yield (*shape[:2], *([FRAMES] * more), *shape[2:])


def _among(slots: list[Slot], sources: frozenset[str]) -> list[Slot]:
    """The slots that are named; all of them, where none is."""
    return [slot for slot in slots if slot.name in sources] or slots
