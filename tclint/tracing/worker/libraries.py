"""Models of libraries by name: 'timm:resnet50', 'hf:gpt2', 'hf:BertForMaskedLM'. Nothing is downloaded.

A library is imported when one of its models is asked for, so it is never a dependency.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tclint.core.errors import TargetError, closest
from tclint.graph.ops import Assumption
from tclint.tracing.recipes.build import find_recipe_model, known_model

_Builder = Callable[[], Any]
_Found = tuple[_Builder, Sequence[Assumption]]

# What a model type is mostly trained as, in order: a head decides about a share of the step.
_HEADS = (
    "PRETRAINING", "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT",
    "ZERO_SHOT_IMAGE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "SEMANTIC_SEGMENTATION",
    "UNIVERSAL_SEGMENTATION", "DEPTH_ESTIMATION", "CTC", "AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION",
)  # fmt: skip


def find_library_model(library: str, name: str, arguments: Mapping[str, Any]) -> _Found:
    """A function that builds the model, and what had to be assumed about it.

    Args:
        library: 'timm', 'hf' or 'recipe'.
        name: of the model; of a recipe, its file.
        arguments: of `timm.create_model`, or of the configuration's class; `recipe`, what such a file says.

    Raises:
        TargetError: the library is not installed, or has no such model.
    """
    if library == "recipe":
        return find_recipe_model(os.path.abspath(name), **arguments["recipe"])
    package, find = _FINDERS[library]
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise TargetError(
            f"{library}:{name} needs the package {package}, which is not installed here; install it in the "
            "environment that runs tclint."
        ) from None
    return find(module, name, arguments)


def model_names(library: str) -> list[str]:
    """The names of all models of 'timm', or of all model types of 'hf', as its package lists them.

    Raises:
        ImportError: the package is not installed.
    """
    module: Any = importlib.import_module(_FINDERS[library][0])
    return list(module.list_models() if library == "timm" else module.CONFIG_MAPPING)


def _find_timm(timm: Any, name: str, arguments: Mapping[str, Any]) -> _Found:
    if not timm.is_model(name.partition(".")[0]):
        raise TargetError(
            f"timm has no model {name!r}.{closest(name, timm.list_models())} 'timm.list_models()' lists them."
        )

    def build() -> Any:
        return timm.create_model(name, pretrained=False, **arguments)

    return build, ()


def _find_transformers(transformers: Any, name: str, arguments: Mapping[str, Any]) -> _Found:
    model_class: Any = getattr(transformers, name, None) if name.isidentifier() else None
    config_class = getattr(model_class, "config_class", None)
    if isinstance(model_class, type) and config_class is not None:
        return _with_default_config(model_class, config_class, f"hf:{name}", arguments)
    configs = transformers.CONFIG_MAPPING
    for model_type in (name, name.replace("-", "_"), name.replace("_", "-")):
        if model_type in configs and "/" not in name:
            config_class = configs[model_type]
            model_class = _class_for(transformers, config_class, model_type)
            return _with_default_config(model_class, config_class, f"hf:{name}", arguments)
    config, what = _config_of(transformers, name, arguments)
    stated = (getattr(config, "architectures", None) or [""])[0]
    found = getattr(transformers, stated, None) or _class_for(transformers, type(config), config.model_type)
    assumption = Assumption(f"hf:{name} is {found.__name__} with {what}")
    return lambda: found(config), (assumption,)


def _with_default_config(
    model_class: Any, config_class: Any, target: str, arguments: Mapping[str, Any]
) -> _Found:
    """The class with its configuration's defaults: often, not always, those of the first published model."""
    changed = "".join(f", {name}={value!r}" for name, value in arguments.items())
    assumption = Assumption(
        f"{target} is {model_class.__name__} with the default {config_class.__name__}{changed}"
    )
    return lambda: model_class(config_class(**arguments)), (assumption,)


def _class_for(transformers: Any, config_class: Any, model_type: str) -> Any:
    for mapping in _mappings(transformers):
        name = mapping.get(model_type)
        names = (name,) if isinstance(name, str) else tuple(name or ())
        for candidate in names:
            found = getattr(transformers, candidate, None)
            if found is not None:
                return found
    raise TargetError(
        f"transformers has a configuration {config_class.__name__}, but no model made from it alone; name a "
        "class, such as 'hf:BertForMaskedLM'."
    )


def _mappings(transformers: Any) -> Iterator[Mapping[str, Any]]:
    auto = importlib.import_module(f"{transformers.__name__}.models.auto.modeling_auto")
    for head in _HEADS:
        yield getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {})
    yield getattr(auto, "MODEL_MAPPING_NAMES", {})


def _config_of(transformers: Any, name: str, arguments: Mapping[str, Any]) -> tuple[Any, str]:
    """The configuration from a folder, the Hub's cache or the table of well-known sizes, and which it is."""
    try:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=True, **arguments)
        return config, "its stored configuration"
    except (OSError, ValueError) as error:
        if os.path.isdir(name):
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise TargetError(f"The configuration in {name!r} cannot be read: {reason}.") from None
    known = known_model(name)
    if known is not None:
        config_class = transformers.CONFIG_MAPPING[known.model_type]
        return config_class(**{**known.config, **arguments}), f"the sizes in {known.source}"
    guess = closest(name, list(transformers.CONFIG_MAPPING))
    raise TargetError(
        f"transformers has no model type or class {name!r}, and there is no folder or cached configuration "
        f"of that name.{guess or ' Write hf:gpt2, hf:BertForMaskedLM or hf:path/to/folder.'}"
    )


_FINDERS: dict[str, tuple[str, Callable[[Any, str, Mapping[str, Any]], _Found]]] = {
    "timm": ("timm", _find_timm),
    "hf": ("transformers", _find_transformers),
}
