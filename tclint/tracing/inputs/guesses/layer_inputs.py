"""Inputs for a model by its layers alone: what the first layer of each kind takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tclint.graph.ops import ASSUMED_BATCH
from tclint.tracing.inputs.guesses.named_inputs import AUDIO_SAMPLES, tokens
from tclint.tracing.inputs.stated_sizes import (
    FRAMES,
    IMAGE_SIZE,
    OTHER_IMAGE_SIZES,
    SIGNAL_LENGTH,
    image_sizes,
    sequence_length,
    stated_frames,
    stated_samples,
)

_META = torch.device("meta")

BATCH = ASSUMED_BATCH
VIDEO_SIZE = (FRAMES, 112, 112)
VOLUME_SIZE = (96, 96, 96)
"""A patch of a medical scan, as nnU-Net and MONAI's models mostly take them."""
COLOURS = 3

_LARGEST_WINDOW = 31
"""The widest fixed filter, such as a blur's; anything wider is a table or a map."""
_MOST_AUDIO_CHANNELS = 2
VOCODER_FRAMES = 32
"""Frames of a spectrogram that a vocoder turns into a waveform: 8,192 samples, a hop of 256 apart."""

_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_ATTENTION = (
    nn.Transformer,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
# The output projection of nn.MultiheadAttention: never called, only its weight is used.
_LINEAR_WITHOUT_FORWARD: Any = getattr(nn.modules.linear, "NonDynamicallyQuantizableLinear", ())


def first_leaf(layer: nn.Module | None) -> nn.Module | None:
    """The first part of a layer that tells what it takes."""
    return None if layer is None else next((part for part in layer.modules() if maker_for(part)), None)


def from_layers(model: nn.Module) -> Iterator[tuple[torch.Tensor, str]]:
    """Inputs for the first layers of each kind, in the order of registration."""
    kinds: set[Callable[..., Any]] = set()
    for name, layer in model.named_modules():
        maker = maker_for(layer)
        if maker is None or maker in kinds:
            continue
        kinds.add(maker)
        order = "first layer" if len(kinds) == 1 else f"first {type(layer).__name__}"
        reason = f"inferred from the {order} ({type(layer).__name__}{f' {name!r}' if name else ''})"
        for tensor in maker(layer, model):
            yield tensor, reason


def from_parameters(model: nn.Module) -> Iterator[tuple[torch.Tensor, str]]:
    """Inputs for the first weight of each rank in layers of the user's own, laid out as torch's are."""
    ranks: set[int] = set()
    for name, owner in model.named_modules():
        if type(owner).__module__.startswith("torch.nn."):
            continue
        for own_name, weight in owner.named_parameters(recurse=False):
            rank = weight.dim()
            if rank in ranks or not 2 <= rank <= 5 or not weight.is_floating_point():
                continue
            if 1 in weight.shape[:2] and not _is_filter_of_one_channel(weight):
                continue  # positions, tokens and biases with a dim for the batch
            ranks.add(rank)
            full_name = f"{name}.{own_name}" if name else own_name
            for shape in _shapes_for_weight(weight, model):
                tensor = torch.empty((BATCH, *shape), dtype=weight.dtype, device=_META)
                yield tensor, f"inferred from the first parameter of so many dims ({full_name!r})"


def _is_filter_of_one_channel(weight: torch.Tensor) -> bool:
    count, channels, *window = weight.shape
    return count > 1 == channels and len(window) > 1 and max(window) <= _LARGEST_WINDOW


def _shapes_for_weight(weight: torch.Tensor, model: nn.Module) -> Iterator[tuple[int, ...]]:
    width = weight.shape[1]
    if weight.dim() == 2:
        yield (width,)
        yield (sequence_length(model), width)
    elif weight.dim() == 3:
        yield width, SIGNAL_LENGTH
    elif weight.dim() == 4:
        for size in (*image_sizes(model), (IMAGE_SIZE, IMAGE_SIZE), (64, 64)):
            yield width, *size
    else:
        yield width, *VIDEO_SIZE


def maker_for(layer: nn.Module) -> _Maker | None:
    """What makes inputs for a layer of that kind."""
    # (That kind of Linear is the output projection of nn.MultiheadAttention, which is never called.)
    if isinstance(layer, _LINEAR_WITHOUT_FORWARD):
        return None
    return next((maker for types, maker in _MAKERS if isinstance(layer, types)), None)


def _floats(layer: nn.Module, *shape: int) -> torch.Tensor:
    weight = next(layer.parameters(), None)
    dtype = weight.dtype if weight is not None and weight.is_floating_point() else torch.float32
    return torch.empty(shape, dtype=dtype, device=_META)


def _for_embedding(_layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    yield tokens(model, BATCH)
    yield torch.empty((BATCH,), dtype=torch.int64, device=_META)


def _for_convolution(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    channels = layer.in_channels or 3  # a lazy layer takes any number
    rank = len(layer.kernel_size)
    if rank == 3:
        sizes = (VIDEO_SIZE, VOLUME_SIZE) if channels == COLOURS else (VOLUME_SIZE, VIDEO_SIZE)
        for clip in sizes:
            yield _floats(layer, BATCH, channels, *clip)
    elif isinstance(layer, nn.ConvTranspose2d):  # a generator grows its image from a point
        for side in (1, 4, 7, 16):
            yield _floats(layer, BATCH, channels, side, side)
    elif rank == 2:
        others = [(size, size) for size in (IMAGE_SIZE, *OTHER_IMAGE_SIZES)]
        for size in (*image_sizes(model), *others):
            yield _floats(layer, BATCH, channels, *size)
        if channels % 3 == 0:
            yield _floats(layer, BATCH, 3, IMAGE_SIZE, IMAGE_SIZE)  # rearranged before the first layer
    else:
        stated = stated_samples(model)
        if channels <= _MOST_AUDIO_CHANNELS:
            lengths = (stated or AUDIO_SAMPLES, SIGNAL_LENGTH, 128)
        elif any(isinstance(part, nn.ConvTranspose1d) for part in model.modules()):
            lengths = (stated_frames(model) or VOCODER_FRAMES, SIGNAL_LENGTH, AUDIO_SAMPLES)
        else:
            lengths = (SIGNAL_LENGTH, AUDIO_SAMPLES, 128)
        for length in lengths:
            yield _floats(layer, BATCH, channels, length)


def _for_recurrent(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    length = sequence_length(model)
    yield _floats(layer, *((BATCH, length) if layer.batch_first else (length, BATCH)), layer.input_size)
    yield _floats(layer, BATCH, 16 * SIGNAL_LENGTH)  # a spectrogram of a waveform comes first


def _for_norm(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    if isinstance(layer, nn.LayerNorm):
        yield _floats(layer, BATCH, sequence_length(model), *layer.normalized_shape)
    elif layer.num_features:
        rank = {"2": 2, "3": 3}.get(type(layer).__name__[-2], 0)
        yield _floats(
            layer, BATCH, layer.num_features, *VIDEO_SIZE[:1] * (rank == 3), *[IMAGE_SIZE] * min(rank, 2)
        )


def _for_attention(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    attention, length = getattr(layer, "self_attn", layer), sequence_length(model)
    width = attention.d_model if isinstance(attention, nn.Transformer) else attention.embed_dim
    yield _floats(layer, *((BATCH, length) if attention.batch_first else (length, BATCH)), width)


def _for_linear(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    if layer.in_features:
        yield _floats(layer, BATCH, layer.in_features)
        yield _floats(layer, BATCH, sequence_length(model), layer.in_features)
        yield _floats(layer, BATCH, 64, 64, layer.in_features)


_Maker = Callable[[Any, nn.Module], Iterator[torch.Tensor]]
_MAKERS: tuple[tuple[tuple[type[nn.Module], ...], _Maker], ...] = (
    ((nn.Embedding,), _for_embedding),
    (_CONVOLUTIONS, _for_convolution),
    ((nn.RNNBase,), _for_recurrent),
    ((nn.modules.batchnorm._NormBase, nn.LayerNorm), _for_norm),
    (_ATTENTION, _for_attention),
    ((nn.Linear,), _for_linear),
)
