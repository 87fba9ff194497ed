"""Sizes that models and their configurations state about themselves, under the names people use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from torch import nn

from tclint.tracing.values.layers import CONFIGURATIONS, arguments_of, is_record, named_values

SEQUENCE_LENGTH = 128
"""Where a model states no other."""
_TRAINED_ON = (
    ("ForCausalLM", 2048),
    ("LMHeadModel", 2048),
    ("ForConditionalGeneration", 512),
    ("ForMaskedLM", 512),
)
"""Tokens, by how classes of transformers are called: of Mamba and T5 (arXiv 2312.00752, 1910.10683)."""
_LONGEST = 4096
"""Tokens: many configurations state what a model could read, not what it is trained on."""
IMAGE_SIZE = 224
# Tried in this order where 224 does not fit: sizes of common data sets and networks.
OTHER_IMAGE_SIZES = (32, 28, 64, 256, 299, 384, 128, 96, 512)
LATENT_FACTOR = 8
"""How many times smaller latents are than their pictures, in most autoencoders of latent diffusion (f8)."""
SIGNAL_LENGTH = 1024
"""Samples."""
FRAMES = 16
"""Frames of a video clip, as most action recognition models take them."""

_IMAGE_SIZE_NAMES = (
    "img_size",
    "image_size",
    "input_size",
    "input_resolution",
    "resolution",
    "img_resolution",
    "image_resolution",
    "sample_size",
    "crop_size",
    "vision_image_size",
)
LENGTH_NAMES = (
    "block_size",
    "bptt",
    "context_len",
    "context_length",
    "context_size",
    "context_window",
    "ctx",
    "ctx_len",
    "ctx_size",
    "max_context_len",
    "max_context_length",
    "max_length",
    "max_len",
    "max_position_embeddings",
    "max_positions",
    "max_seq_len",
    "max_seq_length",
    "max_seqlen",
    "max_sequence_length",
    "maxlen",
    "n_ctx",
    "n_positions",
    "seq_len",
    "seq_length",
    "sequence_len",
    "sequence_length",
    "train_seq_len",
)
"""Names of the number of tokens that a model is trained on, or takes at most."""
_POSITION_NAME = re.compile(r"(^|_)(w?pos|wpe|position|positional|positions)(_|$|emb|enc)", re.IGNORECASE)
"""Names of tables that have a row for every position."""
_CHANNEL_NAMES = ("img_channels", "image_channels", "in_channels", "in_chans", "num_channels", "channels")
_SAMPLE_RATE_NAMES = ("sampling_rate", "sample_rate", "samplerate")
_MOST_SECONDS = 60
CONTEXT_WIDTH_NAMES = (
    "caption_channels",
    "cross_attention_input_dim",
    "encoder_hid_dim",
    "cross_attention_dim",
    "joint_attention_dim",
    "context_dim",
    "text_embed_dim",
    "text_dim",
)
_PARTS = (
    "vision_config",
    "text_config",
    "audio_config",
    "encoder_config",
    "backbone_config",
    "speech_encoder",
    "encoder",
    "decoder",
    "thinker_config",
)


def attribute(owner: Any, *names: str) -> Any:
    """The first attribute that is there and not None; reading a property may raise anything."""
    for name in names:
        try:
            value = getattr(owner, name, None)
        except Exception:
            continue
        if value is not None:
            return value
    return None


def number(owner: Any, *names: str) -> int | None:
    """The first attribute that is a whole number above zero."""
    for name in names:
        value = attribute(owner, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def configured(config: Any, *names: str, default: int) -> int:
    """A number of a configuration or of one of its parts, two levels deep."""
    for owner in _with_parts(config, 2):
        found = number(owner, *names)
        if found is not None:
            return found
    return default


def stated_number(model: nn.Module, *names: str) -> int | None:
    """What the model states under one of the names, its configuration or what it was constructed with."""
    for owner in itertools.islice(_owners(model), 3):
        found = number(owner, *names)
        if found is not None:
            return found
    return None


def image_sizes(model: nn.Module) -> list[tuple[int, int]]:
    """Height and width under every name that states them, in the order of the modules."""
    sizes: list[tuple[int, int]] = []
    for owner in _owners(model):
        for name in _IMAGE_SIZE_NAMES:
            size = _size(attribute(owner, name))
            if size is not None and min(size) >= 8 and size not in sizes:
                sizes.append(size)
    return sizes


def states_image(model: nn.Module, size: tuple[int, ...]) -> bool:
    """Whether the model itself, its configuration or what it was built with states that height and width."""
    return any(
        _size(attribute(owner, name)) == size for owner in _owners(model, 1) for name in _IMAGE_SIZE_NAMES
    )


def stated_image(model: nn.Module) -> tuple[int, int, int] | None:
    """Channels, height and width, where the model or its configuration states all of them."""
    for owner in itertools.islice(_owners(model), 3):
        channels = number(owner, *_CHANNEL_NAMES)
        size = next((found for name in _IMAGE_SIZE_NAMES if (found := _size(attribute(owner, name)))), None)
        if channels is not None and size is not None and min(size) >= 4:
            return channels, *size
    return None


def stated_samples(model: nn.Module) -> int | None:
    """Samples of a segment whose length the model states beside its rate, else of a second at that rate."""
    rate = number(model, *_SAMPLE_RATE_NAMES)
    if rate is None:
        return None
    seconds = attribute(model, "segment", "segment_length")
    if not isinstance(seconds, (int, float, Fraction)) or not 0 < seconds <= _MOST_SECONDS:
        seconds = 1
    return int(rate * seconds)


def stated_frames(model: nn.Module) -> int | None:
    """Frames of a spectrogram whose segment the configuration states in samples."""
    for owner in _owners(model):
        samples, hop = (
            number(owner, "segment_size", "segment_length"),
            number(owner, "hop_size", "hop_length"),
        )
        if samples is not None and hop is not None and samples >= hop:
            return samples // hop
    return None


def sequence_length(model: nn.Module) -> int:
    """What the model states that it is trained on or takes, but at most 4,096; else what is customary."""
    length = min(_stated_lengths(model), default=_customary_length(model))
    if length > 2 and (length - 2).bit_count() == 1:
        length -= 2  # positions from 2 on: the first two have another meaning (RoBERTa, BART)
    return min(length, _LONGEST)


def states_length(model: nn.Module) -> bool:
    """Whether the model, or what is customary for its class, says how long its sequences are."""
    return bool(_stated_lengths(model)) or _customary_length(model) != SEQUENCE_LENGTH


def stated_length(owner: Any) -> int | None:
    """The number of tokens that a model or a configuration states."""
    # Beside num_beams, max_length is the length at which `generate` stops: 20 by default in transformers 4.
    generates = number(owner, "num_beams") is not None
    return number(owner, *(name for name in LENGTH_NAMES if not (generates and name == "max_length")))


def _stated_lengths(model: nn.Module) -> list[int]:
    limits = [limit for owner in _owners(model) if (limit := stated_length(owner)) is not None]
    return limits or [
        layer.num_embeddings
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Embedding) and _POSITION_NAME.search(name.rpartition(".")[2])
    ]


def _customary_length(model: nn.Module) -> int:
    """What a language model that states no context is trained on."""
    name = type(model).__name__
    return next((length for end, length in _TRAINED_ON if name.endswith(end)), SEQUENCE_LENGTH)


def context_width(model: nn.Module) -> int | None:
    """The width of the sequence that the model's cross attention reads."""
    for owner in _owners(model):
        found = number(owner, *CONTEXT_WIDTH_NAMES)
        if found is not None:
            return found
    return None


def _size(value: Any) -> tuple[int, int] | None:
    if isinstance(value, Mapping):
        value = [value.get("height", value.get("shortest_edge")), value.get("width", value.get("height"))]
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value, value)
    if (
        isinstance(value, (tuple, list))
        and len(value) in (2, 3)
        and all(isinstance(side, int) for side in value)
    ):
        return value[-2], value[-1]
    return None


def _owners(model: nn.Module, levels: int = 3) -> Iterator[Any]:
    """The objects that may state sizes: the model, what it was constructed with, its configuration, and its
    parts, two levels deep."""
    level: list[Any] = [model]
    for _ in range(levels):
        following: list[Any] = []
        for module in level:
            yield module
            if module is model:
                yield arguments_of(model)
            config = attribute(module, *CONFIGURATIONS) or attribute(arguments_of(module), *CONFIGURATIONS)
            if config is not None and not isinstance(config, (str, nn.Module)):
                yield from _with_parts(config, 1)
            if module is model:
                yield from _records(arguments_of(model), _RECORD_LEVELS)
            following += list(module.children())
        level = following


_RECORD_LEVELS = 3
"""Of a configuration: config.data.train.image_size."""


def _records(record: Any, depth: int) -> Iterator[SimpleNamespace]:
    """The records inside of one, level by level, as attributes."""
    inner = [value for value in named_values(record).values() if is_record(value)]
    yield from (SimpleNamespace(**named_values(value)) for value in inner)
    if depth > 1:
        for value in inner:
            yield from _records(value, depth - 1)


def _with_parts(config: Any, depth: int) -> Iterator[Any]:
    yield config
    if depth:
        for name in _PARTS:
            part = attribute(config, name)
            if part is not None and not isinstance(part, (str, int, dict, list, nn.Module)):
                yield from _with_parts(part, depth - 1)
