"""Other inputs for a model whose forward failed on the inferred ones, made from what the failure tells."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import torch
from torch import nn

from tclint.graph.ops import Assumption
from tclint.tracing.inputs.given import CallInputs, described
from tclint.tracing.inputs.guesses.inference import guesses_for
from tclint.tracing.inputs.guesses.named_inputs import AUDIO_SAMPLES, is_mask
from tclint.tracing.inputs.repair.clues import Clues, RankClash, Shape, SizeClash
from tclint.tracing.inputs.repair.slots import (
    LARGEST,
    Change,
    Slot,
    exchanged,
    like,
    permuted,
    slots_of,
    with_size,
)
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
_MAX_ANCESTORS = 400
_MAX_TIMES = 4
"""How often a model is taken to join a tensor with itself."""
# Those that are tried, and Atari's frames as agents see them and MobileNets' small images.
_CUSTOMARY = tuple(sorted({IMAGE_SIZE, *OTHER_IMAGE_SIZES, 84, 160}))
# A class token, a distillation token, registers.
_EXTRA_TOKENS = (0, 1, 2, 4, 5)


_Goal = tuple[Slot, list[tuple[str, int, int]]]


class Repairs:
    """Makes other inputs from failures, and remembers how sizes of feature maps follow those of the input."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._seen: dict[tuple[str, int], dict[int, int]] = {}
        """(operator, axis counted from the end) -> input size -> feature size."""
        self._goal: _Goal | None = None
        """The feature sizes that are being looked for."""
        self._goals: dict[str, _Goal] = {}
        """The same for each proposal."""

    def propose(self, tried: CallInputs, clues: Clues, first: CallInputs) -> Iterator[CallInputs]:
        """Inputs that differ from `tried` as the clues suggest, likeliest first."""
        slots = slots_of(tried, self._model)
        self._goal = self._goals.get(tried.describe())
        for change in self._changes(slots, clues):
            candidate = _changed(tried, change, self._model, first)
            if self._goal is not None:
                self._goals.setdefault(candidate.describe(), self._goal)
            yield candidate

    def _changes(self, slots: list[Slot], clues: Clues) -> Iterator[Change]:
        for sources, shape in clues.classes:
            yield {
                slot.path: like(slot.tensor, shape=shape, dtype=torch.int64)
                for slot in slots
                if slot.name in sources
            }
        if clues.integers is not None:
            for slot in _among(slots, clues.integers):
                if slot.tensor.is_floating_point():
                    yield {slot.path: like(slot.tensor, dtype=torch.int64)}
        if clues.floats is not None:
            integers = [s for s in _among(slots, clues.floats) if not s.tensor.is_floating_point()]
            if integers:
                yield {slot.path: like(slot.tensor, dtype=torch.float32) for slot in integers}
        if clues.is_list is not None:
            for slot in _among(slots, clues.is_list):
                if slot.tensor.dim() > 1:
                    yield {
                        slot.path: [like(slot.tensor, shape=slot.tensor.shape[1:]) for _ in range(_LISTED)]
                    }
        if clues.names:
            yield {slot.path: clues.names[slot.name] for slot in slots if slot.name in clues.names}
        yield from self._added(slots, clues.missing)
        if clues.swapped:
            yield {slot.path: permuted(slot.tensor, 0, 1) for slot in slots if slot.tensor.dim() > 1}
        if clues.is_single:
            yield {slot.path: with_size(slot.tensor, {0: 1}) for slot in slots if slot.tensor.dim()}
        if clues.is_small:
            yield from self._larger(slots, clues.small_axes)
        for rank in clues.ranks:
            if rank.is_likely:
                yield from self._reshaped(slots, rank)
        yield from _with_rows(slots, clues.rows)
        for clash in clues.sizes:
            yield from self._resized(slots, clash)
        for rank in clues.ranks:
            yield from self._reshaped(slots, rank)
        for size, divisor in clues.divisors:
            yield from _divisible(slots, size, divisor)
        if clues.is_uneven:
            for multiple in (32, 64):
                yield from _to_multiples(slots, multiple)
        yield from _with_rows(slots, clues.sizes)
        if clues.sizes:
            for slot in slots:
                if slot.tensor.dim() == 3:
                    yield {slot.path: permuted(slot.tensor, 1, 2)}

        yield from self._added(slots, clues.unused)

    def _added(self, slots: list[Slot], names: list[str]) -> Iterator[Change]:
        for name in names:
            if slots and all(slot.name != name for slot in slots):
                for value in guesses_for(name, slots[0].tensor, self._model):
                    yield {(name,): value}

    # ------------------------------------------------------------ sizes

    def _resized(self, slots: list[Slot], clash: SizeClash) -> Iterator[Change]:
        chosen = _among(slots, clash.sources)
        yield from _all_resized(slots, clash)
        for slot in chosen:
            shape = slot.tensor.shape
            have = [axis for axis in range(1, len(shape)) if shape[axis] == clash.have]
            want = [axis for axis in range(1, len(shape)) if shape[axis] == clash.want]
            for one, other in itertools.product(have, want):
                yield {slot.path: permuted(slot.tensor, one, other)}
            for axis in have:
                yield {slot.path: with_size(slot.tensor, {axis: clash.want})}
            # What is repeated or joined with itself before the layer: neighbours beside points.
            for axis, size in enumerate(shape[1:], 1):
                times = clash.have // size
                if 1 < times <= _MAX_TIMES and clash.have == times * size and clash.want % times == 0:
                    yield {slot.path: with_size(slot.tensor, {axis: clash.want // times})}
            if clash.have == math.prod(shape[1:]):  # a view of all features of an example
                for axis, size in enumerate(shape[1:], 1):
                    whole, rest = divmod(size * clash.want, clash.have)
                    if whole and not rest and len(shape) == 3:
                        yield {slot.path: with_size(slot.tensor, {axis: whole})}
        for slot in chosen:
            for axes in _spatial_choices(slot.tensor):
                yield from self._scaled(slot, clash, slots, axes)
        for slot in chosen:
            yield from _shifted(slot, clash)

    def _scaled(
        self, slot: Slot, clash: SizeClash, slots: list[Slot], axes: tuple[int, ...]
    ) -> Iterator[Change]:
        """Another image size or length, so that a feature map has as many elements as a layer wants."""
        for name, shape in itertools.islice(clash.before, _MAX_ANCESTORS):
            for goals in _goals(shape, clash, len(axes)):
                sizes = self._aim(slot, name, shape, goals, axes)
                if sizes:
                    yield _with_twins(slot, sizes, slots)
            if axes and len(shape) == slot.tensor.dim() and tuple(shape) == tuple(slot.tensor.shape):
                break
        for extra in _EXTRA_TOKENS:
            have, want = clash.have - extra, clash.want - extra
            if have <= 0 or want <= 0:
                continue
            ratio = Fraction(want, have)
            if len(axes) == 2:
                height, width = math.isqrt(ratio.numerator), math.isqrt(ratio.denominator)
                if Fraction(height**2, width**2) != ratio:
                    continue
                ratio = Fraction(height, width)
            sizes = {axis: slot.tensor.shape[axis] * ratio for axis in axes}
            if sizes and all(size.denominator == 1 for size in sizes.values()):
                yield _with_twins(slot, {axis: int(size) for axis, size in sizes.items()}, slots)

    def _aim(
        self, slot: Slot, name: str, shape: Shape, goals: dict[int, int], axes: tuple[int, ...]
    ) -> dict[int, int]:
        """Input sizes for which an operator's output may have the sizes in `goals`, by axis from the end."""
        for axis in axes:
            back = axis - slot.tensor.dim()
            if -back <= len(shape):
                self._seen.setdefault((name, back), {})[slot.tensor.shape[axis]] = shape[back]
        self._goal = (slot, [(name, back, size) for back, size in goals.items()])
        return self._sizes_for_goal(slot)

    def _sizes_for_goal(self, slot: Slot) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for name, back, goal in self._goal[1] if self._goal else ():
            size = _solve(self._seen.get((name, back), {}), goal)
            if size is None:
                return {}
            sizes[slot.tensor.dim() + back] = size
        return sizes

    def _larger(self, slots: list[Slot], small_axes: tuple[int, ...]) -> Iterator[Change]:
        if self._goal is not None:
            for slot in slots:
                if slot.path == self._goal[0].path and slot.tensor.dim() == self._goal[0].tensor.dim():
                    for name, back, _goal in self._goal[1]:
                        if back not in small_axes:
                            continue
                        size = slot.tensor.shape[back]
                        self._seen.setdefault((name, back), {}).setdefault(size, 0)
                    sizes = self._sizes_for_goal(slot)
                    if sizes:
                        yield _with_twins(slot, sizes, slots)
        for slot in slots:
            axes = _spatial_axes(slot.tensor)
            if axes:
                yield _with_twins(slot, {axis: 2 * slot.tensor.shape[axis] for axis in axes}, slots)

    # ------------------------------------------------------------ ranks

    def _reshaped(self, slots: list[Slot], clash: RankClash) -> Iterator[Change]:
        for slot in _among(slots, clash.sources):
            rank = slot.tensor.dim() + clash.more
            for shape in self._shapes(slot.tensor, rank):
                made = like(slot.tensor, shape=shape)
                masks = [other for other in slots if is_mask(other.name) and other.tensor.dim() > 2]
                if rank == 3 and slot not in masks and masks:
                    # Taken for an image, and its mask for an image's; that of a sequence has its steps.
                    steps = {mask.path: torch.ones(shape[:2], dtype=torch.bool) for mask in masks}
                    yield {slot.path: made, **steps}
                yield {slot.path: made}

    def _shapes(self, tensor: torch.Tensor, rank: int) -> Iterator[Shape]:
        shape, length = tuple(tensor.shape), sequence_length(self._model)
        if rank < 1 or rank > 6 or not shape:
            return
        if rank < len(shape):
            if len(shape) == 4 and rank == 3 and shape[1] > 4:
                yield (shape[0], shape[2], shape[1])
            yield (shape[0], *shape[len(shape) - rank + 1 :])
            if len(shape) == 4 and rank == 3:  # no picture but a signal, or points
                yield (*shape[:2], AUDIO_SAMPLES if shape[1] == 1 else SIGNAL_LENGTH)
            elif rank > 1:
                yield shape[:rank]
            return
        if not tensor.is_floating_point():
            yield (*shape, *([length] if len(shape) == 1 else [4]), *([4] * (rank - len(shape) - 1)))
            return
        if len(shape) == 2 and rank == 3:
            # Features come in steps; what is too long to be features is a signal, which has channels.
            steps, channel = (shape[0], length, shape[1]), (shape[0], 1, shape[1])
            yield from (channel, steps) if shape[1] >= SIGNAL_LENGTH else (steps, channel)
            yield (*shape, length)
        elif len(shape) == 2 and rank in (4, 5):
            sides = [*image_sizes(self._model), (IMAGE_SIZE, IMAGE_SIZE)]
            for channels in _channels_of(shape[1]):
                for side in sides:
                    yield (shape[0], *([FRAMES] if rank == 5 else []), channels, *side)
            yield (shape[0], *([8] * (rank - 2)), shape[1])
        elif len(shape) == 1:
            yield (shape[0], *([length] * (rank - 1)))
        else:
            more = rank - len(shape)
            yield (shape[0], *([FRAMES] * more), *shape[1:])
            yield (shape[0], *([1] * more), *shape[1:])
            yield (shape[0], shape[1], *([FRAMES] * more), *shape[2:])


def _with_rows(slots: list[Slot], clashes: list[SizeClash]) -> Iterator[Change]:
    for clash in clashes:
        for slot in _among(slots, clash.sources):
            if slot.tensor.dim() and slot.tensor.shape[0] == clash.have:
                yield {slot.path: with_size(slot.tensor, {0: clash.want})}


def _all_resized(slots: list[Slot], clash: SizeClash) -> Iterator[Change]:
    """Sequences that belong together, such as words and their mask, have one length."""
    sized = {
        slot.path: (slot, axes)
        for slot in slots
        if (axes := [axis for axis in range(1, slot.tensor.dim()) if slot.tensor.shape[axis] == clash.have])
    }
    if len(sized) > 1 and any(slot.name in clash.sources for slot, _ in sized.values()):
        yield {
            key: with_size(slot.tensor, dict.fromkeys(axes, clash.want))
            for key, (slot, axes) in sized.items()
        }


def _shifted(slot: Slot, clash: SizeClash) -> Iterator[Change]:
    """A part of what was joined is larger or smaller by the difference."""
    rank = slot.tensor.dim()
    axis = rank - 3 if rank >= 4 else rank - 1
    size = slot.tensor.shape[axis] + clash.want - clash.have if axis > 0 else 0
    if size > 0:
        yield {slot.path: with_size(slot.tensor, {axis: size})}


def _goals(shape: Shape, clash: SizeClash, count: int) -> Iterator[dict[int, int]]:
    """Sizes of the last axes of a feature map, by axis from the end, that would settle the clash."""
    if 0 in shape:
        return
    if count == 2 and len(shape) >= 4:
        area, channels = shape[-1] * shape[-2], shape[-3]
        targets = []
        if clash.have == channels * area and clash.want % channels == 0:
            targets.append(clash.want // channels)
        elif clash.have == math.prod(shape[1:]) and clash.want % (math.prod(shape[1:]) // area) == 0:
            targets.append(clash.want // (math.prod(shape[1:]) // area))
        targets += [clash.want - extra for extra in _EXTRA_TOKENS if clash.have == area + extra]
        for target in targets:
            for height, width in itertools.islice(_factors(target), 5):
                yield {-2: height, -1: width}
        for back in (-2, -1):
            if clash.have == shape[back]:
                yield {back: clash.want}
    elif count == 1 and len(shape) == 3:
        if clash.have == shape[1] * shape[2] and clash.want % shape[1] == 0:
            yield {-1: clash.want // shape[1]}
        for extra in _EXTRA_TOKENS:
            if clash.have == shape[2] + extra and clash.want > extra:
                yield {-1: clash.want - extra}


def _factors(number: int) -> Iterator[tuple[int, int]]:
    """Pairs of factors, the squarest first, the smaller one first."""
    for small in range(math.isqrt(max(number, 0)), 0, -1):
        if number % small == 0:
            yield small, number // small


def _solve(seen: dict[int, int], goal: int) -> int | None:
    """The input size for a feature size, from the pairs (input, feature) seen so far."""
    exact = next((size for size, feature in seen.items() if feature == goal), None)
    if exact is not None:
        return exact
    below = max((size for size, feature in seen.items() if feature < goal), default=0)
    above = min((size for size, feature in seen.items() if feature > goal), default=None)
    low_feature = seen.get(below, 0)
    if above is None:
        guess = below * goal / low_feature if low_feature else 2.0 * below
        low, high = below + 1, LARGEST
    else:
        guess = below + (above - below) * (goal - low_feature) / (seen[above] - low_feature)
        low, high = below + 1, above - 1
    if low > high:
        return None
    return _roundest(min(max(round(guess), low), high), low, high)


def _roundest(size: int, low: int, high: int) -> int:
    """A customary size near `size`, else the nearby multiple of the largest power of two."""
    customary = [side for side in _CUSTOMARY if low <= side <= high and abs(side - size) <= size // 10]
    if customary:
        return min(customary, key=lambda side: abs(side - size))
    near = max(1, size // 25)
    candidates = range(max(low, size - near), min(high, size + near) + 1)
    return max(candidates, key=lambda number: (number & -number, -abs(number - size)), default=size)


def _spatial_axes(tensor: torch.Tensor) -> tuple[int, ...]:
    rank = tensor.dim()
    if rank >= 4:
        return rank - 2, rank - 1
    return (rank - 1,) if rank in (2, 3) else ()


def _spatial_choices(tensor: torch.Tensor) -> list[tuple[int, ...]]:
    """A tensor of three dims may be a batch of signals or one of images without channels."""
    axes = [_spatial_axes(tensor)]
    return [*axes, (1, 2)] if tensor.dim() == 3 else axes


def _with_twins(slot: Slot, sizes: dict[int, int], slots: list[Slot]) -> Change:
    """Resize a tensor, and the other inputs of its shape with it."""
    return {
        other.path: with_size(other.tensor, sizes)
        for other in slots
        if other.tensor.shape == slot.tensor.shape
    }


def _divisible(slots: list[Slot], size: int, divisor: int) -> Iterator[Change]:
    for slot in slots:
        axes = [axis for axis in range(1, slot.tensor.dim()) if slot.tensor.shape[axis] == size]
        multiple = max(1, size // divisor) * divisor
        if axes and multiple != size:
            yield {slot.path: with_size(slot.tensor, dict.fromkeys(axes, multiple))}


def _to_multiples(slots: list[Slot], multiple: int) -> Iterator[Change]:
    for slot in slots:
        if slot.tensor.dim() >= 4:
            sizes = {
                axis: math.ceil(slot.tensor.shape[axis] / multiple) * multiple
                for axis in _spatial_axes(slot.tensor)
            }
            yield _with_twins(slot, sizes, slots)


def _channels_of(width: int) -> Iterator[int]:
    """Channels of an image whose flattened square patches, or pixels, are so wide."""
    for channels in (3, 1, 4):
        if width % channels == 0 and math.isqrt(width // channels) ** 2 == width // channels:
            yield channels
    yield 3


def _among(slots: list[Slot], sources: frozenset[str]) -> list[Slot]:
    """The slots that are named; all of them, where none is."""
    return [slot for slot in slots if slot.name in sources] or slots


def _changed(tried: CallInputs, change: Change, model: nn.Module, first: CallInputs) -> CallInputs:
    args, kwargs = exchanged(tried, change)
    names = argument_names(model, len(args))
    listed = ", ".join(
        f"{name} = {described(value)}" for name, value in (*zip(names, args, strict=True), *kwargs.items())
    )
    word = "input" if len(args) + len(kwargs) == 1 else "inputs"
    what = f"{word} {listed}, by trying until the forward ran; --input sets another"
    # The last assumption is the one about inputs.
    assumptions = (*first.assumptions[:-1], Assumption(what))
    return dataclasses.replace(
        tried, args=args, kwargs=kwargs, assumptions=assumptions, basis="repair", alternatives=()
    )
