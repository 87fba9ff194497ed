"""Inputs for a transformers model: what its forward asks for, with the sizes its configuration states."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

BATCH, LENGTH = 2, 64
GRID = (1, 8, 8)
AUDIO_SAMPLES = 16000
_PARTS = (
    "vision_config",
    "audio_config",
    "encoder_config",
    "backbone_config",
    "speech_encoder",
    "encoder",
    "text_config",
    "decoder",
    "thinker_config",
)


class NoInputs(LookupError):
    """The forward asks for something that nothing here knows how to make."""


def inputs_for(model: Any) -> dict[str, Any]:
    """Keyword inputs: the main input, and every argument that the forward requires.

    Raises:
        NoInputs: with the names of the arguments.
    """
    parameters = inspect.signature(model.forward).parameters
    wanted = [model.main_input_name] if model.main_input_name in parameters else []
    wanted += [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in wanted
    ]
    if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        wanted.append("decoder_input_ids")
    # Two-tower models need both modalities.
    if "input_ids" in wanted and "pixel_values" in parameters and _is_two_tower(model.config):
        wanted.append("pixel_values")
    if "input_ids" in wanted and "input_features" in parameters and model.config.model_type == "clap":
        wanted.append("input_features")
    if "bbox" in parameters and model.config.model_type in ("bros", "udop"):
        wanted.append("bbox")
    if not wanted:
        wanted = [name for name in ("input_ids", "pixel_values", "inputs_embeds") if name in parameters][:1]
    if model.config.model_type in ("blip-2", "instructblip"):
        wanted = list(dict.fromkeys([*wanted, "pixel_values", "input_ids"]))
        made = {name: _MAKERS[name](model.config) for name in wanted}
        return {**made, "input_ids": _captioned(model.config)}
    if model.config.model_type == "speecht5":  # what its pre-nets would hand on
        return {name: _hidden(model.config) for name in ("input_values", "decoder_input_values")}
    if model.config.model_type == "moshi_depth":
        states = torch.empty((BATCH, 1, model.config.input_size), device="meta")
        return {"input_ids": _tokens(model.config), "last_hidden_state": states}
    if model.config.model_type == "perceiver":
        return {"inputs": _features(model.config)}
    if model.config.model_type.startswith("fastspeech2"):
        model.eval()  # in training it wants durations, pitch and energy
    if "grid_thw" in wanted:
        return _grid_inputs(wanted, model.config)
    if getattr(model.config, "is_encoder_decoder", False) and {"decoder_input_values"} & set(parameters):
        wanted.append("decoder_input_values")
    unknown = [name for name in wanted if name not in _MAKERS]
    if unknown or not wanted:
        raise NoInputs(f"no inputs known for {', '.join(unknown) or 'a forward without named inputs'}")
    made = {name: _MAKERS[name](model.config) for name in wanted}
    if model.config.model_type == "udop":
        made["bbox"] = made["bbox"].float()
    if model.config.model_type in ("neucodec", "xcodec2"):
        made["input_values"] = made["input_values"].unsqueeze(1)
        if model.config.model_type == "xcodec2":  # 50 frames a second, like its own encoder's
            made["input_features"] = made["input_features"][:, :50]
    return made


def _grid_inputs(wanted: list[str], config: Any) -> dict[str, Any]:
    """Vision encoders of the Qwen-VL kind: flattened patches, and the grid that they came from."""
    patch = setting(config, "patch_size", default=14)
    time = setting(config, "temporal_patch_size", default=1)
    count = GRID[0] * GRID[1] * GRID[2]
    made: dict[str, Any] = {}
    for name in wanted:
        if name == "grid_thw":
            made[name] = torch.tensor([GRID])
        elif name in ("hidden_states", "pixel_values"):
            made[name] = torch.empty((count, _channels(config) * time * patch * patch), device="meta")
        elif name == "merge_sizes":
            made[name] = torch.tensor([setting(config, "spatial_merge_size", default=2)])
        else:
            raise NoInputs(f"no inputs known for {name}")
    return made


def _is_two_tower(config: Any) -> bool:
    return (
        hasattr(config, "projection_dim")
        and hasattr(config, "vision_config")
        and hasattr(config, "text_config")
        and not hasattr(config, "image_token_id")
        and not hasattr(config, "image_token_index")
    )


def setting(config: Any, *names: str, default: Any = None) -> Any:
    """The first of the named values that the configuration, or a part of it, has."""
    for name in names:
        try:
            value = getattr(config, name, None)
        except Exception:  # some configurations refuse to tell what differs between layers
            continue
        if value is not None:
            return value
    for part_name in _PARTS:
        part = getattr(config, part_name, None)
        if part is not None and not isinstance(part, (str, int, dict)):
            value = setting(part, *names)
            if value is not None:
                return value
    return default


def _tokens(config: Any) -> torch.Tensor:
    length = min(LENGTH, setting(config, "max_position_embeddings", default=LENGTH))
    if config.model_type == "reformer":  # its axial positions take one length in training
        length = math.prod(config.axial_pos_shape)
    if config.model_type == "moshi_depth":  # one token of each codebook
        length = config.num_codebooks
    return torch.ones((BATCH, length), dtype=torch.int64)


def _mask(config: Any) -> torch.Tensor:
    return _tokens(config)


def _captioned(config: Any) -> torch.Tensor:
    """As many image tokens as the query transformer hands to the language model, then words."""
    ids = torch.ones((BATCH, config.num_query_tokens + LENGTH), dtype=torch.int64)
    ids[:, : config.num_query_tokens] = config.image_token_index
    return ids


def _features(config: Any) -> torch.Tensor:
    return torch.empty((BATCH, 2048, config.d_model), device="meta")


def _image_size(config: Any) -> tuple[int, int]:
    size = setting(config, "image_size", "img_size", "input_size", "vision_image_size", default=224)
    if isinstance(size, dict):
        size = size.get("height", size.get("shortest_edge", 224)), size.get("width", 224)
    if isinstance(size, (list, tuple)):
        return int(size[0]), int(size[-1])
    return int(size), int(size)


def _channels(config: Any) -> int:
    channels = setting(config, "num_channels", "in_channels", "in_chans", default=3)
    return channels if isinstance(channels, int) else 3


def _images(config: Any) -> torch.Tensor:
    frames = setting(config, "num_frames")
    shape = (BATCH, _channels(config), *_image_size(config))
    if frames and config.model_type in (
        "videomae",
        "vivit",
        "timesformer",
        "tvlt",
        "x_clip",
        "xclip",
        "instructblipvideo",
    ):
        shape = (BATCH, frames, *shape[1:])
    return torch.empty(shape, device="meta")


def _video(config: Any) -> torch.Tensor:
    frames = setting(config, "num_frames", "frames_per_clip", default=8)
    return torch.empty((BATCH, frames, _channels(config), *_image_size(config)), device="meta")


def _audio_features(config: Any) -> torch.Tensor:
    mels = setting(
        config,
        "feature_projection_input_dim",
        "num_mel_bins",
        "input_feat_per_channel",
        "feature_size",
        "input_dim",
    )
    semantic = getattr(config, "semantic_model_config", None)
    mels = mels or getattr(semantic, "feature_projection_input_dim", None) or 80
    if setting(config, "spec_size"):  # an image of the spectrogram
        return torch.empty((BATCH, 1, 1024, mels), device="meta")
    positions = setting(config, "max_source_positions")
    if getattr(config, "model_type", "") == "whisper" and positions:
        return torch.empty((BATCH, mels, 2 * positions), device="meta")
    return torch.empty((BATCH, 512, mels), device="meta")


def _waveform(config: Any) -> torch.Tensor:
    frames, mels = getattr(config, "max_length", None), getattr(config, "num_mel_bins", None)
    if config.model_type == "audio-spectrogram-transformer":
        return torch.empty((BATCH, frames, mels), device="meta")
    return torch.empty((BATCH, AUDIO_SAMPLES), device="meta")


def _hidden(config: Any) -> torch.Tensor:
    size = setting(config, "hidden_size", "d_model", "n_embd", default=768)
    return torch.empty((BATCH, LENGTH, size), device="meta")


def _series(extra: int) -> Callable[[Any], torch.Tensor]:
    def make(config: Any) -> torch.Tensor:
        length = setting(config, "context_length", default=32)
        lags = getattr(config, "lags_sequence", None)
        length += max(lags) if lags else 0
        if extra:
            features = setting(config, "num_time_features", default=1)
            return torch.empty((BATCH, length, features), device="meta")
        channels = setting(config, "num_input_channels", default=1)
        return torch.empty(
            (BATCH, length, channels) if channels > 1 or not lags else (BATCH, length), device="meta"
        )

    return make


def _spectrogram(config: Any) -> torch.Tensor:
    mels = setting(config, "model_in_dim", "mel_dim", "num_mel_bins", default=80)
    return torch.empty((BATCH, 100, mels), device="meta")


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "attention_mask": _mask,
    "bbox": lambda _config: torch.zeros((BATCH, LENGTH, 4), dtype=torch.int64),
    "decoder_input_ids": _tokens,
    "decoder_input_values": _spectrogram,
    "hidden_states": _hidden,
    "input_features": _audio_features,
    "input_ids": _tokens,
    "input_values": _waveform,
    "inputs": _tokens,
    "inputs_embeds": _hidden,
    "encoder_hidden_states": _hidden,
    "pixel_values": _images,
    "pixel_values_videos": _video,
    "past_observed_mask": _series(0),
    "past_time_features": _series(1),
    "past_values": _series(0),
    "prompt_masks": _images,
    "prompt_pixel_values": _images,
    "qformer_input_ids": _tokens,
    "spectrogram": _spectrogram,
}
