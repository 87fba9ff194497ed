"""The sample on which tclint is compared with other tools: kinds of model that people train.

timm: residual, mobile, plain and windowed transformers, hybrids, three of 300 million parameters and more.
transformers: encoders, decoders, encoder-decoders, speech, vision, state space, experts; default
configurations, those of more than a billion parameters with two layers. custom: hand-written, half of them
with recurrence or control flow that depends on values.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from zoo_case import Case


@dataclass(frozen=True)
class Model:
    """A model by library and name; `small` cuts a transformers model to two layers."""

    library: str
    name: str
    small: bool = False

    def case(self) -> Case:
        source = importlib.import_module(
            "zoo_custom.cases" if self.library == "custom" else f"zoo_{self.library}"
        )
        cases = source.small_cases() if self.small else source.cases()
        return next(case for case in cases if case.name == self.name)


_TIMM = (
    "resnet50",
    "densenet121",
    "regnety_032",
    "efficientnet_b0",
    "mobilenetv3_large_100",
    "convnext_tiny",
    "vit_base_patch16_224",
    "swin_tiny_patch4_window7_224",
    "maxvit_tiny_tf_224",
    "coatnet_0_rw_224",
    "mixer_b16_224",
    "volo_d1_224",
    "hrnet_w18",
    "vit_large_patch16_224",
    "convnext_xlarge",
    "vit_huge_patch14_224",
)
_TRANSFORMERS = (
    "bert",
    "distilbert",
    "deberta-v2",
    "gpt2",
    "opt",
    "t5",
    "bart",
    "whisper",
    "wav2vec2",
    "clip",
    "vit",
    "detr",
    "mamba",
)
_TRANSFORMERS_TWO_LAYERS = ("llama", "qwen2", "mixtral")
_CUSTOM = (
    "lstm_language_model",
    "packed_lstm_sorted",
    "gru_cell_loop",
    "diffusion_unet",
    "dcgan_generator",
    "ctc_speech_recognizer",
    "dlrm",
    "graph_attention",
    "expert_loop",
    "generation_with_cache",
    "adaptive_computation",
    "tree_lstm",
)


def _models() -> Iterator[Model]:
    yield from (Model("timm", name) for name in _TIMM)
    yield from (Model("transformers", name) for name in _TRANSFORMERS)
    yield from (Model("transformers", name, small=True) for name in _TRANSFORMERS_TWO_LAYERS)
    yield from (Model("custom", name) for name in _CUSTOM)


MODELS = {model.name: model for model in _models()}
