"""Configurations for the architectures of transformers: the default one, completed where no model fits it.

Some defaults leave out what the model needs (a number of experts, a vocabulary of image tokens), because
every published checkpoint states it; these get the values of such a checkpoint, or small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_EXPERTS = {"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6}
_ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
_LAYER_ROPES = {"full_attention": dict(_ROPE), "sliding_attention": dict(_ROPE)}
_MIXED = [("full_attention" if index % 4 == 3 else "linear_attention") for index in range(32)]
_GEMMA_EXPERTS = {"num_experts": 16, "top_k_experts": 2, "moe_intermediate_size": 704}

# Arguments of the configuration's class.
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "autoformer": {"prediction_length": 24},
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "blip-2": {"image_token_index": 5},
    "chameleon": {"vocabulary_map": {"<image>": 8711}},
    "cohere_compass": {"text_config": {"rope_parameters": _LAYER_ROPES}},
    "cohere_compass_text": {"rope_parameters": _LAYER_ROPES},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "diffusion_gemma": {"text_config": _GEMMA_EXPERTS},
    "diffusion_gemma_text": _GEMMA_EXPERTS,
    "dots1": _EXPERTS,
    "emu3": {"vocabulary_map": {"<image>": 151_643, "<|extra_200|>": 151_846}},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "granitemoehybrid": {"layer_types": _MIXED},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl": {"text_config": {"head_dim": 128}},
    "hunyuan_vl_text": {"head_dim": 128},
    "informer": {"prediction_length": 24},
    "instructblip": {"image_token_index": 5},
    "instructblipvideo": {"video_token_index": 5},
    "lfm2_moe": {"layer_types": [("full_attention" if i % 4 == 2 else "conv") for i in range(32)]},
    "ministral": {"head_dim": 128},
    "pp_doclayout_v2": {
        "class_thresholds": [0.5] * 25,
        "class_order": [index % 20 for index in range(25)],
        "num_labels": 25,
    },
    "time_series_transformer": {"prediction_length": 24},
}

# Model classes where an AutoModel takes one that does not fit the configuration.
MODEL_CLASSES = {
    "musicgen": "MusicgenForConditionalGeneration",
    "musicgen_melody": "MusicgenMelodyForConditionalGeneration",
}


def default_config(config_class: Any) -> Any:
    """The default configuration; composites that require parts get BERT, ViT or the class's own example."""
    maker = _COMPOSITES.get(config_class.model_type)
    config = maker() if maker else config_class(**_ARGUMENTS.get(config_class.model_type, {}))
    for part in parts_of(config):
        for complete in _COMPLETIONS:
            complete(part)
    return config


def parts_of(config: Any, depth: int = 3) -> Iterator[Any]:
    """A configuration and those inside it."""
    import transformers

    yield config
    if depth:
        for value in list(vars(config).values()):
            if isinstance(value, transformers.PreTrainedConfig):
                yield from parts_of(value, depth - 1)


def _divisible_heads(config: Any) -> None:
    """SigLIP's 1152 features in a composite that says 14 heads."""
    width, heads = getattr(config, "hidden_size", None), getattr(config, "num_attention_heads", None)
    if "siglip" in config.model_type and isinstance(width, int) and isinstance(heads, int) and width % heads:
        config.num_attention_heads = 16


def _matching_sections(config: Any) -> None:
    """Rotary sections of a half head, where the default says those of another head."""
    rope = getattr(config, "rope_parameters", None)
    if not config.model_type.startswith("glm") or not isinstance(rope, dict) or "rope_theta" not in rope:
        return
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    half = (int(head * rope.get("partial_rotary_factor", 1.0)) + 1) // 2
    rope["mrope_section"] = [half - 2 * (half * 3 // 8), half * 3 // 8, half * 3 // 8]


def _dense_first(config: Any) -> None:
    layers = getattr(config, "num_hidden_layers", None)
    if getattr(config, "mlp_layer_types", "") is None and isinstance(layers, int):
        config.mlp_layer_types = ["dense"] + ["sparse"] * (layers - 1)
        config.num_experts_per_tok = config.num_experts_per_tok or 6


def _rope_theta(config: Any) -> None:
    inner = getattr(config, "attn_config", None)
    if config.model_type == "dbrx" and inner is not None and not hasattr(inner, "rope_theta"):
        inner.rope_theta, inner.clip_qkv = 10_000.0, 8.0


def _own_heads(config: Any) -> None:
    if config.model_type == "moonshine_streaming" and not hasattr(config, "num_key_value_heads"):
        config.num_key_value_heads = config.num_attention_heads


def _no_cache(config: Any) -> None:
    if config.model_type == "blt":  # its cache asks for a number of layers that only its parts have
        config.use_cache = False


_COMPLETIONS: tuple[Callable[[Any], None], ...] = (
    _divisible_heads,
    _matching_sections,
    _dense_first,
    _rope_theta,
    _own_heads,
    _no_cache,
)


def _encoder_decoder() -> Any:
    import transformers

    return transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.BertConfig(), transformers.BertConfig()
    )


def _vision_encoder_decoder() -> Any:
    import transformers

    return transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(), transformers.BertConfig()
    )


def _speech_encoder_decoder() -> Any:
    import transformers

    return transformers.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.Wav2Vec2Config(), transformers.BertConfig()
    )


def _vision_text_dual_encoder() -> Any:
    import transformers

    return transformers.VisionTextDualEncoderConfig.from_vision_text_configs(
        transformers.ViTConfig(), transformers.BertConfig()
    )


_COMPOSITES: dict[str, Callable[[], Any]] = {
    "encoder-decoder": _encoder_decoder,
    "speech-encoder-decoder": _speech_encoder_decoder,
    "vision-encoder-decoder": _vision_encoder_decoder,
    "vision-text-dual-encoder": _vision_text_dual_encoder,
}
