"""Every architecture that transformers knows, from its default configuration, with random weights."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from zoo_case import Case
from zoo_hf_configs import MODEL_CLASSES, default_config
from zoo_hf_inputs import inputs_for, setting
from zoo_hf_small import narrow, shrink

# Heads that change what runs; a base model comes first, a head only where there is no base model.
_AUTO_CLASSES = (
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForImageTextToText",
    "AutoModelForMaskedLM",
    "AutoModelForImageClassification",
    "AutoModelForObjectDetection",
    "AutoModelForSemanticSegmentation",
    "AutoModelForUniversalSegmentation",
    "AutoModelForDepthEstimation",
    "AutoModelForKeypointDetection",
    "AutoModelForTextToWaveform",
    "AutoModelForSpeechSeq2Seq",
    "AutoBackbone",
)


def versions() -> str:
    import torch
    import transformers

    return f"torch {torch.__version__}, transformers {transformers.__version__}"


def cases() -> Iterator[Case]:
    """One case per model type of CONFIG_MAPPING, in its order (alphabetical)."""
    import transformers
    from transformers.models.auto import configuration_auto

    transformers.logging.set_verbosity_error()
    # What most modeling files import is imported once, before the processes fork.
    for name in ("bert", "clip", "detr", "llama", "mixtral", "qwen2_vl", "vit", "wav2vec2", "whisper"):
        importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    for model_type in configuration_auto.CONFIG_MAPPING_NAMES:
        yield case(model_type)


def small_cases() -> Iterator[Case]:
    """The same with two layers, so that their weights fit into memory."""
    from transformers.models.auto import configuration_auto

    for model_type in configuration_auto.CONFIG_MAPPING_NAMES:
        yield case(model_type, depth=2)


def case(model_type: str, *, depth: int | None = None, is_narrow: bool = False) -> Case:
    found: list[Any] = []

    def prepare() -> None:
        """Imports: the configuration and the modeling file are the library, not the model."""
        from transformers.models.auto import configuration_auto

        config_class = configuration_auto.CONFIG_MAPPING[model_type]
        found[:] = [config_class, model_class(config_class)]

    def build() -> tuple[Any, Any]:
        model = build_model()
        return model, inputs_for(model)

    def build_model() -> Any:
        config_class, cls = found
        config = default_config(config_class)
        if depth is not None:
            shrink(config, depth)
            if is_narrow:
                narrow(config)
        elif _expert_calls(config) > _MAX_EXPERT_CALLS:
            shrink(config, depth=8)
        return cls._from_config(config) if hasattr(cls, "_from_config") else cls(config)

    is_small = depth is not None and not is_narrow
    smaller = case(model_type, depth=depth, is_narrow=True) if is_small else None
    return Case(model_type, model_type, build, prepare, build_model, smaller)


def model_class(config_class: Any) -> Any:
    """The class that an AutoModel would build for a configuration, else one its module defines for it.

    Raises:
        LookupError: no class takes it (a part of other configurations, a composite without a model).
    """
    import transformers

    if config_class.model_type in MODEL_CLASSES:
        return getattr(transformers, MODEL_CLASSES[config_class.model_type])
    for auto_name in _AUTO_CLASSES:
        mapping = getattr(transformers, auto_name)._model_mapping
        try:
            if config_class in mapping:
                cls = mapping[config_class]
                return cls[0] if isinstance(cls, (tuple, list)) else cls
        except (ImportError, AttributeError, ValueError):
            continue
    module_name = config_class.__module__.replace(".configuration_", ".modeling_")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise LookupError(f"{config_class.__name__} has no modeling file") from error
    for cls in vars(module).values():
        if (
            inspect.isclass(cls)
            and issubclass(cls, transformers.PreTrainedModel)
            and cls.config_class is config_class
            and "forward" in {name for base in cls.__mro__[:-3] for name in vars(base)}
            and not cls.__name__.endswith("PreTrainedModel")
        ):
            return cls
    raise LookupError(f"no model class takes a {config_class.__name__} alone")


# A Python loop over that many experts runs hundreds of thousands of operators, each layer's like the others'.
_MAX_EXPERT_CALLS = 10_000


def _expert_calls(config: Any) -> int:
    experts = setting(config, "n_routed_experts", "num_local_experts", "num_experts", default=0)
    layers = setting(config, "num_hidden_layers", "num_layers", default=0)
    return experts * layers if isinstance(experts, int) and isinstance(layers, int) else 0
