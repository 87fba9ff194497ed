"""Other sizes that guessed pictures, clips, sequences and signals may have, where nothing states one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tclint.tracing.inputs.given import CallInputs
from tclint.tracing.inputs.guesses.inference import CORA, PUBMED
from tclint.tracing.inputs.guesses.named_inputs import AUDIO_SAMPLES
from tclint.tracing.inputs.stated_sizes import (
    SEQUENCE_LENGTH,
    image_sizes,
    sequence_length,
    stated_frames,
    stated_samples,
    states_length,
)

_SIDES = ((32, 64, 128, 256, 384), (512, 384))
"""Of pictures: of CIFAR's up to what detection and segmentation train on; the first that runs counts."""
_LARGE = 1024
"""The side from which on pictures are not taken for crops of larger ones."""
_PATCH = 96
"""The side of the smallest pictures that models which enlarge them are trained to make (arXiv 1609.04802)."""
_LENGTHS = ((32, 64), (1024, 512))
"""Of sequences, in tokens."""


class Others(NamedTuple):
    """Inputs that are as plausible as those that were guessed, with less work and with more."""

    why: str
    """'nothing states its height and width'."""
    smaller: tuple[tuple[str, CallInputs], ...]
    """By what is said of them ('at 32x32'), the farthest from the guess first."""
    larger: tuple[tuple[str, CallInputs], ...]


def other_sizes(inputs: CallInputs, model: nn.Module, enlarged: int = 1) -> Others | None:
    """None where the model or its project states the sizes, or nobody had to guess.

    Args:
        enlarged: how many times the pictures that it makes are as high as those that it takes.
    """
    square = functools.partial(_square, enlarged=enlarged)
    if inputs.source != "inferred" or (inputs.basis == "stated" and not inputs.is_shown):
        return None
    stated = image_sizes(model)
    if inputs.is_shown:  # nobody shows a model on pictures of another rank, or on a toy's sequences
        shown = next((tensor for tensor in _tensors(inputs) if tensor.dim() == 4), None)
        size = () if shown is None else tuple(shown.shape[2:])
        if shown is None or not shown.is_floating_point() or size in stated or min(size) == 1:
            return None
        return _resized(inputs, size, "the height and width that it trains on", square)
    if any(CORA[0] in tensor.shape for tensor in _tensors(inputs)):
        larger = ("for the nodes and edges of PubMed", _of_graph(inputs))
        return Others("nothing states how large its graphs are", (), (larger,))
    for tensor in _tensors(inputs):
        if not tensor.is_floating_point():
            continue
        rank, size = tensor.dim(), tuple(tensor.shape)
        if rank == 4 and size[2:] not in stated and min(size[2:]) > 1:
            return _resized(inputs, size[2:], "its height and width", square)
        if rank == 5 and size[3:] not in stated and min(size[2:]) > 1:
            return _resized(inputs, size[2:], "its size", _scaled)
        stated_lengths = (stated_samples(model), stated_frames(model))
        is_sequence = _is_sequence(tensor) or sequence_length(model) in size[:-1]
        if rank in (2, 3) and not is_sequence and size[-1] not in stated_lengths:
            # Where layers state it, as the width of features, the model runs with no other.
            alike = (one for one in _tensors(inputs) if one.dim() > 1 and one.shape[-1:] == size[-1:])
            is_sampled = any(one.is_floating_point() and one.shape[1:-1].numel() == 1 for one in alike)
            return _resized(inputs, size[-1:], "its length", _sampled if is_sampled else _scaled)
    if states_length(model) or not any(_is_sequence(tensor) for tensor in _tensors(inputs)):
        return None
    return Others(
        "nothing states the length of a sequence",
        *(
            tuple((f"at a length of {length}", _of_length(inputs, length)) for length in lengths)
            for lengths in _LENGTHS
        ),
    )


def _tensors(inputs: CallInputs) -> Iterator[torch.Tensor]:
    for value in pytree.tree_leaves((inputs.args, inputs.kwargs)):
        if isinstance(value, torch.Tensor):
            yield value


def _changed(inputs: CallInputs, change: Callable[[torch.Tensor], torch.Tensor]) -> CallInputs:
    args, kwargs = pytree.tree_map_only(torch.Tensor, change, (inputs.args, inputs.kwargs))
    return dataclasses.replace(inputs, args=args, kwargs=kwargs, alternatives=())


# ---------------------------------------------------------------- pictures, clips, signals

_Sizes = tuple[int, ...]
_Choices = Callable[[_Sizes], tuple[list[_Sizes], list[_Sizes]]]


def _resized(inputs: CallInputs, size: _Sizes, what: str, choices: _Choices) -> Others:
    """With those tensors resized whose last dims are these."""

    def one(other: _Sizes) -> tuple[str, CallInputs]:
        def change(tensor: torch.Tensor) -> torch.Tensor:
            ends_so = tensor.dim() > len(size) and tuple(tensor.shape[-len(size) :]) == size
            return tensor.new_empty((*tensor.shape[: -len(size)], *other)) if ends_so else tensor

        return f"at {'x'.join(map(str, other))}", _changed(inputs, change)

    smaller, larger = choices(size)
    return Others(f"nothing states {what}", tuple(map(one, smaller)), tuple(map(one, larger)))


def _square(size: _Sizes, enlarged: int) -> tuple[list[_Sizes], list[_Sizes]]:
    smaller, larger = _SIDES if enlarged == 1 else ((_PATCH,), _SIDES[1])
    sides = [side // enlarged for side in smaller], [side // enlarged for side in larger]
    twice: list[_Sizes] = [(2 * size[0], 2 * size[1])] if sides[1][0] <= max(size) < _LARGE else []
    taller: list[_Sizes] = [(side, side) for side in sides[1] if side > max(size)]
    return [(side, side) for side in sides[0] if side < min(size)], taller or twice


def _scaled(size: _Sizes) -> tuple[list[_Sizes], list[_Sizes]]:
    """Half and twice of each dim; a signal, which has but one, a quarter and four times."""
    factor = 4 if len(size) == 1 else 2
    return [tuple(max(1, side // factor) for side in size)], [tuple(side * factor for side in size)]


def _sampled(size: _Sizes) -> tuple[list[_Sizes], list[_Sizes]]:
    """As `_scaled`; a signal of one channel may be sound, of which models take seconds."""
    smaller, larger = _scaled(size)
    return smaller, [(4 * AUDIO_SAMPLES,), *larger] if size[0] < AUDIO_SAMPLES else larger


# ---------------------------------------------------------------- graphs, sequences


def _of_graph(inputs: CallInputs) -> CallInputs:
    larger = dict(zip(CORA, PUBMED, strict=True))

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.new_empty([larger.get(size, size) for size in tensor.shape], device="meta")

    return _changed(inputs, change)


def _is_sequence(tensor: torch.Tensor) -> bool:
    last = tensor.dim() - tensor.is_floating_point()
    return tensor.dim() in (2, 3) and SEQUENCE_LENGTH in tensor.shape[:last]


def _of_length(inputs: CallInputs, length: int) -> CallInputs:
    """With that length wherever the guessed one is; the last dim of numbers is a width."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_meta and tensor.dim() == 1 and bool((tensor == SEQUENCE_LENGTH).all()):
            return torch.full_like(tensor, length)  # how long each of them is
        if not _is_sequence(tensor):
            return tensor
        last = tensor.dim() - tensor.is_floating_point()
        sizes = (
            length if size == SEQUENCE_LENGTH and axis < last else size
            for axis, size in enumerate(tensor.shape)
        )
        make = torch.empty if tensor.is_meta else torch.ones  # a mask of which everything counts
        return make(tuple(sizes), dtype=tensor.dtype, device=tensor.device)

    return _changed(inputs, change)
