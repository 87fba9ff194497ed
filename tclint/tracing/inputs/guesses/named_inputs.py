"""Inputs by the names of a forward's arguments, where those are customary.

Models of transformers name their arguments alike, and their configuration states the sizes. In other models
with several inputs a name such as `mask`, `lengths` or `timesteps` tells the kind, and the first layers tell
the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from tclint.tracing.inputs.forward import parameters_of
from tclint.tracing.inputs.stated_sizes import (
    IMAGE_SIZE,
    attribute,
    configured,
    context_width,
    image_sizes,
    sequence_length,
)

_META = torch.device("meta")
AUDIO_SAMPLES = 16000
"""A second at 16 kHz, the rate of speech models."""
_UTTERANCE_SAMPLES = 250_000
"""That wav2vec 2.0 and its kin were trained on at most (arXiv 2006.11477)."""
_FRAMES = 512
_T5_TARGETS = 114
"""Tokens that spans of an input of 512 are replaced by (arXiv 1910.10683, appendix B)."""
_FRAME_NAMES = ("num_frames", "frames_per_clip")
_TEXT_TOKENS = 77
"""That a text encoder hands to the cross attention of a model that makes images: CLIP's context."""

_Maker = Callable[[nn.Module, Any, int], torch.Tensor]


def configured_inputs(model: nn.Module, required: Sequence[str], batch: int) -> Iterator[dict[str, Any]]:
    """Keyword inputs for a model of transformers, likeliest first; none where a name is not known."""
    main, config = attribute(model, "main_input_name"), attribute(model, "config")
    parameters = parameters_of(model)
    if not isinstance(main, str) or config is None or main not in parameters:
        return
    wanted = list(dict.fromkeys([main, *required]))
    if attribute(config, "is_encoder_decoder") and "decoder_input_ids" in parameters:
        wanted.append("decoder_input_ids")
    if any(name not in _MAKERS for name in wanted):
        return
    others = [
        name for name in ("pixel_values", "input_features") if name in parameters and name not in wanted
    ]
    sets = [wanted, *([*wanted, other] for other in others)]
    if all(attribute(config, name) is not None for name in ("projection_dim", "text_config")):
        sets.reverse()  # two towers, which are compared
    for names in sets:
        made = {name: _MAKERS[name](model, config, batch) for name in names}
        shaped = [
            {**made, name: _alternative(name, made[name], config)}
            for name in ("input_features", "pixel_values")
            if name in made
        ]
        # Models of clips state how many frames they take; what they call pixel_values is no picture.
        yield from [*shaped, made] if configured(config, *_FRAME_NAMES, default=0) else [made, *shaped]


def further_inputs(
    names: Sequence[str], first: torch.Tensor, model: nn.Module
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Inputs for the arguments `names` beside the first, likeliest first."""
    length = first.shape[1] if first.dim() > 1 else first.shape[0]
    batch = first.shape[0] if first.dim() else 1
    choices = [_by_name(name, first, batch, length, model) for name in names]
    for index in range(max((len(choice) for choice in choices), default=0)):
        yield tuple(choice[min(index, len(choice) - 1)] for choice in choices)


def tokens(model: nn.Module, batch: int) -> torch.Tensor:
    """Indices of words: their values are never looked at."""
    return torch.empty((batch, sequence_length(model)), dtype=torch.int64, device=_META)


def floating_dtype(model: nn.Module) -> torch.dtype:
    """That of the model's first parameter with one."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def by_name(name: str, first: torch.Tensor, model: nn.Module) -> list[torch.Tensor]:
    """Inputs for one argument beside the first, likeliest first."""
    config, made = attribute(model, "config"), []
    if config is not None and isinstance(attribute(model, "main_input_name"), str) and name in _MAKERS:
        made.append(_MAKERS[name](model, config, first.shape[0] if first.dim() else 1))
    return made + [tensor for (tensor,) in further_inputs([name], first, model)]


def are_lengths(name: str) -> bool:
    """Whether an argument of that name holds how long each of the other's sequences is."""
    return re.search(r"length|(^|_)lens?($|_)", name.lower()) is not None


def is_mask(name: str) -> bool:
    """Whether an argument of that name says which elements of another count."""
    return "mask" in name.lower()


def is_context(name: str) -> bool:
    """Whether an argument of that name holds a sequence that another one attends to."""
    return re.fullmatch(r"ctx|context|memory|encoder_(hidden_states?|outputs?|out)", name.lower()) is not None


def are_images(name: str) -> bool:
    """Whether an argument of that name holds pictures, which select nothing."""
    return re.fullmatch(r"imgs?|images?|frames?|videos?|pixel_values", name.lower()) is not None


def may_be_images(name: str) -> bool:
    """Whether an argument of that name may hold pictures, or what a diffusion model makes of them."""
    return are_images(name) or re.fullmatch(r"x|x_?t|inputs?|samples?|latents?", name.lower()) is not None


def are_times(name: str) -> bool:
    """Whether an argument of that name holds a step of diffusion, or a level of noise, for each example."""
    times = r"t|ts|time|times|time_?steps?|steps?|sigmas?|noise_(levels?|labels?)|diffusion_steps?"
    return re.fullmatch(times, name.lower()) is not None


def are_latents(name: str) -> bool:
    """Whether an argument of that name holds what an encoder made of pictures."""
    return re.fullmatch(r"z|latents?", name.lower()) is not None


def are_labels(name: str) -> bool:
    """Whether an argument of that name holds one class for each example."""
    return re.fullmatch(r"y|labels?|class_?(ids?|labels?)|targets?", name.lower()) is not None


def are_targets(name: str) -> bool:
    """Whether labels of that name may be what a loss compares with, and not what the model is told."""
    return re.fullmatch(r"labels?|targets?", name.lower()) is not None


def _by_name(name: str, first: torch.Tensor, batch: int, length: int, model: nn.Module) -> list[torch.Tensor]:
    scalars = torch.empty((batch,), dtype=torch.int64, device=_META)
    if are_lengths(name):
        return [torch.full((batch,), length, dtype=torch.int64)]
    if is_context(name) and (width := context_width(model)) is not None:
        return [torch.empty((batch, _TEXT_TOKENS, width), dtype=floating_dtype(model), device=_META)]
    if is_mask(name) and first.dim() == 4 and first.is_floating_point():
        return [first.new_empty((batch, 1, *first.shape[2:])), torch.empty_like(first)]
    if is_mask(name):
        kinds = (torch.bool, torch.int64, floating_dtype(model))
        return [torch.ones((batch, length), dtype=kind) for kind in kinds]
    if are_times(name):
        return [scalars, torch.empty((batch,), dtype=floating_dtype(model), device=_META)]
    if are_labels(name) and first.is_floating_point():
        return [scalars, torch.empty_like(first)]
    return [torch.empty_like(first)]


def _images(model: nn.Module, config: Any, batch: int) -> torch.Tensor:
    size = (image_sizes(model) or [(IMAGE_SIZE, IMAGE_SIZE)])[0]
    channels = configured(config, "num_channels", "in_channels", "in_chans", default=3)
    return torch.empty((batch, channels, *size), dtype=floating_dtype(model), device=_META)


def _mels(config: Any) -> int:
    names = ("feature_projection_input_dim", "num_mel_bins", "input_feat_per_channel", "feature_size")
    return configured(config, *names, "input_dim", default=80)


def _audio_features(model: nn.Module, config: Any, batch: int) -> torch.Tensor:
    positions = configured(config, "max_source_positions", default=_FRAMES)
    return torch.empty((batch, _mels(config), 2 * positions), dtype=floating_dtype(model), device=_META)


def _alternative(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    if name == "input_features":
        # Time before frequency in the other half of the models.
        return tensor.new_empty((tensor.shape[0], min(tensor.shape[2], _FRAMES), tensor.shape[1]))
    frames = configured(config, *_FRAME_NAMES, default=16)
    return tensor.new_empty((tensor.shape[0], frames, *tensor.shape[1:]))


def _waveform(model: nn.Module, config: Any, batch: int) -> torch.Tensor:
    frames, mels = attribute(config, "max_length"), attribute(config, "num_mel_bins")
    if isinstance(frames, int) and isinstance(mels, int):  # a spectrogram after all
        shape: tuple[int, ...] = (batch, frames, mels)
    elif attribute(config, "feat_extract_norm") is not None:
        shape = (batch, _UTTERANCE_SAMPLES)
    else:
        shape = (batch, AUDIO_SAMPLES)
    return torch.empty(shape, dtype=floating_dtype(model), device=_META)


def _series(model: nn.Module, config: Any, batch: int) -> torch.Tensor:
    lags = attribute(config, "lags_sequence")
    longest = max(lags) if isinstance(lags, (list, tuple)) and lags else 0
    length = configured(config, "context_length", "prediction_length", default=32) + longest
    channels = configured(config, "num_input_channels", default=1)
    shape = (batch, length) if longest and channels == 1 else (batch, length, channels)
    return torch.empty(shape, dtype=floating_dtype(model), device=_META)


def _tokens(model: nn.Module, _config: Any, batch: int) -> torch.Tensor:
    return tokens(model, batch)


def _answers(model: nn.Module, config: Any, batch: int) -> torch.Tensor:
    """What a decoder reads beside an encoder; T5's kin are trained on fewer tokens of it."""
    made = tokens(model, batch)
    is_t5 = "t5" in str(attribute(config, "model_type")).lower()
    return made[:, :_T5_TARGETS] if is_t5 else made


def _ones(model: nn.Module, _config: Any, batch: int) -> torch.Tensor:
    return torch.ones((batch, sequence_length(model)), dtype=torch.int64)


_LANGUAGE_MODEL = re.compile(r"\w*(ForCausalLM|LMHeadModel|ForMaskedLM|ForConditionalGeneration)")


def target_argument(model: nn.Module, first: str) -> tuple[str, str] | None:
    """The optional argument for the next or the masked tokens, and the argument that it is shaped like.

    None where the forward has none, and where what it takes may be another thing, such as a class.
    """
    optional = {name for name, given in parameters_of(model).items() if given.default is None}
    if _LANGUAGE_MODEL.fullmatch(type(model).__name__) and "labels" in optional:
        is_decoder = bool(attribute(attribute(model, "config"), "is_encoder_decoder"))
        return "labels", "decoder_input_ids" if is_decoder else first
    return next(((name, first) for name in ("targets", "target") if name in optional), None)


_MAKERS: dict[str, _Maker] = {
    "attention_mask": _ones,
    "decoder_input_ids": _answers,
    "input_features": _audio_features,
    "input_ids": _tokens,
    "input_values": _waveform,
    "past_values": _series,
    "pixel_values": _images,
}
