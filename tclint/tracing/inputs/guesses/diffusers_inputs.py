"""Inputs of models of diffusers, by the names of their arguments and the sizes of their configuration."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tclint.tracing.inputs.forward import package_of, parameters_of
from tclint.tracing.inputs.guesses.named_inputs import floating_dtype
from tclint.tracing.inputs.stated_sizes import CONTEXT_WIDTH_NAMES, LATENT_FACTOR, attribute, number

_META = torch.device("meta")
_LATENT_SIDE = 64
"""Latents of 512-pixel pictures, on which Stable Diffusion 1 was trained."""
_PACKED_SIDE = 64
"""Latents of 1,024-pixel pictures whose 2x2 neighbours are packed into one token (Flux)."""
_CLIP = (21, 60, 104)
"""Latents of 81 frames of 480x832 pixels, on which Wan was trained."""
_CLIP_TOKENS = 77
_T5_TOKENS, _T5_WIDTH = 512, 4096
_TIME_IDS = 6
"""Sizes of the picture before and after cropping, and where it was cropped (SDXL)."""


def diffusers_inputs(model: nn.Module, batch: int) -> dict[str, Any] | None:
    """Keyword inputs for the denoisers and autoencoders of diffusers; None for other models."""
    config = attribute(model, "config")
    if config is None or all(package_of(kind.__module__) != "diffusers" for kind in type(model).__mro__):
        return None
    made = _Inputs(model, config, batch).made()
    parameters = parameters_of(model)
    required = {name for name, given in parameters.items() if given.default is given.empty}
    return made if made and required <= set(made) <= set(parameters) else None


class _Inputs:
    def __init__(self, model: nn.Module, config: Any, batch: int) -> None:
        self._model, self._config, self._batch = model, config, batch
        self._names = parameters_of(model)
        self._dtype = floating_dtype(model)

    def made(self) -> dict[str, Any]:
        config = self._config
        main = "sample" if "sample" in self._names else "hidden_states"
        latents = self._latents()
        if latents is None or main not in self._names:
            return {}
        made: dict[str, Any] = {main: self._floats(*latents)}
        width = number(config, *CONTEXT_WIDTH_NAMES)
        tokens = number(config, "max_text_seq_length") or (_T5_TOKENS if width == _T5_WIDTH else _CLIP_TOKENS)
        sizes = {
            "encoder_hidden_states": width and (tokens, width),
            "pooled_projections": (pooled := number(config, "pooled_projection_dim")) and (pooled,),
            "global_hidden_states": (wide := number(config, "global_states_input_dim")) and (1, wide),
            "controlnet_cond": (shown := number(config, "conditioning_channels"))
            and (shown, *(LATENT_FACTOR * side for side in latents[1:])),
            "guidance": attribute(config, "guidance_embeds") and (),
        }
        for name, size in sizes.items():
            if name in self._names and isinstance(size, tuple):
                made[name] = self._floats(*size)
        if {"img_ids", "txt_ids"} <= set(self._names):
            made["img_ids"] = torch.empty((latents[0], 3), dtype=self._dtype, device=_META)
            made["txt_ids"] = torch.empty((tokens, 3), dtype=self._dtype, device=_META)
        if "timestep" in self._names:
            dtype = self._dtype if "img_ids" in self._names else torch.int64
            made["timestep"] = torch.empty((self._batch,), dtype=dtype, device=_META)
        if "class_labels" in self._names and attribute(config, "num_class_embeds") is not None:
            made["class_labels"] = torch.empty((self._batch,), dtype=torch.int64, device=_META)
        conditions = self._conditions()
        if conditions and "added_cond_kwargs" in self._names:
            made["added_cond_kwargs"] = conditions
        return made

    def _latents(self) -> tuple[int, ...] | None:
        """The sizes of the main input behind the batch."""
        config = self._config
        channels = number(config, "in_channels")
        if channels is None:
            return None
        side = attribute(config, "sample_size")
        if "img_ids" in self._names:
            return _PACKED_SIDE**2, channels
        frames, height, width = (number(config, f"sample_{name}") for name in ("frames", "height", "width"))
        if frames is not None and height is not None and width is not None:
            steps = (frames - 1) // (number(config, "temporal_compression_ratio") or 1) + 1
            return steps, channels, height, width
        patch = attribute(config, "patch_size")
        if isinstance(patch, (list, tuple)) and len(patch) == 3:
            return (channels, *_CLIP)
        if isinstance(side, int) and not any(isinstance(part, nn.Conv2d) for part in self._model.modules()):
            return channels, side
        if isinstance(side, (list, tuple)):
            return (channels, *side)
        return channels, side or _LATENT_SIDE, side or _LATENT_SIDE

    def _conditions(self) -> dict[str, torch.Tensor]:
        """What a text-to-image model is told beside the text."""
        config = self._config
        each, whole = (
            number(config, name)
            for name in ("addition_time_embed_dim", "projection_class_embeddings_input_dim")
        )
        if attribute(config, "addition_embed_type") == "text_time" and each is not None and whole is not None:
            return {
                "text_embeds": self._floats(whole - _TIME_IDS * each),
                "time_ids": self._floats(_TIME_IDS),
            }
        if attribute(self._model, "use_additional_conditions"):  # PixArt
            return {"resolution": self._floats(2), "aspect_ratio": self._floats(1)}
        return {}

    def _floats(self, *sizes: int) -> torch.Tensor:
        return torch.empty((self._batch, *sizes), dtype=self._dtype, device=_META)
