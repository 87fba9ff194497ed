"""Builds what a configuration file trains: its base model with added tokens, adapters and checkpoints."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tclint.core.errors import TargetError
from tclint.graph.ops import Assumption, Site
from tclint.tracing.recipes.places import at_line
from tclint.tracing.recipes.sizes import known_model

_Found: TypeAlias = "tuple[Callable[[], Any], Sequence[Assumption]]"

_DEFAULT_TARGETS = ("q_proj", "v_proj", "query_key_value", "c_attn", "qkv_proj")
"""Layers of which peft adapts those that a model has, where a file names none (peft/utils/constants.py)."""


def find_recipe_model(path: str, settings: Mapping[str, Any], lines: Mapping[str, int]) -> _Found:
    """A function that builds the model and its inputs, and what had to be assumed, which is complete once it
    has run.

    The function returns the model and a dict of its inputs: input_ids and labels, int64 (1, length).

    Args:
        path: the configuration file, absolute.
        settings: what it says, by the names of tclint/source/recipes/tables/README.md.
        lines: where it says so.

    Raises:
        TargetError: transformers is not installed, or the model's sizes are not known.
    """
    said = settings
    try:
        transformers: Any = importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise TargetError(
            "its step takes the package transformers, which is not installed where tclint runs."
        ) from None
    config, dtype, what = _configuration(transformers, str(said["model"]), path)
    model_class = _class_of(transformers, config, str(said["model"]))
    weights = str(said.get("weights", "float32"))
    weights = dtype if weights == "auto" else weights
    notes = [Assumption(f"the model is {model_class.__name__} {what}", Site(path, lines["model"]))]

    def build() -> Any:
        model = _base(model_class, config, said, lines, path, weights)
        notes[1:] = _adapted(model, said, lines, path, weights)
        if said.get("checkpointing"):
            # transformers 5 has a new name for it.
            enable = getattr(model, "activation_checkpointing_enable", None)
            (enable or model.gradient_checkpointing_enable)()
        model.train()
        return model, _inputs(int(said["length"]))

    return build, notes


def _configuration(transformers: Any, name: str, path: str) -> tuple[Any, str, str]:
    """The configuration, the dtype of the published weights, and where both are from."""
    local = os.path.join(os.path.dirname(path), name)
    stored = next((folder for folder in (name, local) if os.path.isdir(folder)), name)
    with contextlib.suppress(Exception):  # what cannot be loaded from here is looked up instead
        config = transformers.AutoConfig.from_pretrained(stored, local_files_only=True)
        dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or "float32"
        return config, str(dtype).removeprefix("torch."), f"with the stored configuration of {name}"
    known = known_model(name)
    if known is None:
        raise TargetError(
            f"the sizes of {name} are not known here: there is no folder or cached configuration of that "
            "name, and tclint's table does not have it."
        )
    config = transformers.CONFIG_MAPPING[known.model_type](**known.config)
    return config, known.dtype, f"with the sizes of {name} in {known.source}"


def _class_of(transformers: Any, config: Any, name: str) -> Any:
    auto = importlib.import_module(f"{transformers.__name__}.models.auto.modeling_auto")
    found = getattr(transformers, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type, ""), None)
    if found is None:
        raise TargetError(
            f"{name} is no causal language model of transformers, the only kind that is built here."
        )
    return found


def _base(
    model_class: Any, config: Any, said: Mapping[str, Any], lines: Mapping[str, int], path: str, weights: str
) -> Any:
    """The model with the vocabulary that it is trained with, in the dtype that it is loaded in."""
    config.use_cache = False
    if said.get("attention") == "eager":  # else transformers' choice, which is SDPA where a model can have it
        config._attn_implementation = "eager"
    with _default_dtype(weights):
        model = at_line(path, lines["model"], lambda: model_class(config))
        added = said.get("tokens")
        if isinstance(added, list) and added:
            multiple = said.get("vocabulary_multiple")
            size = config.vocab_size + len(added)
            at_line(
                path,
                lines["tokens"],
                lambda: model.resize_token_embeddings(size, pad_to_multiple_of=multiple, mean_resizing=False),
            )
    return model


@contextlib.contextmanager
def _default_dtype(name: str) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _adapted(
    model: Any, said: Mapping[str, Any], lines: Mapping[str, int], path: str, weights: str
) -> Iterator[Assumption]:
    """Quantize the base, and put adapters on it; what to say about it."""
    import torch

    from tclint.tracing.recipes.adapters import adapt, quantize, train_whole

    rank, bits = said.get("rank"), said.get("bits")
    if not rank:
        return
    if bits:
        compute = getattr(torch, weights if weights != "float32" else "bfloat16")
        double = bool(said.get("double_quantized"))
        count = at_line(
            path, lines["model"], lambda: quantize(model, int(bits), compute, double_quantized=double)
        )
        yield Assumption(
            f"{count / 1e9:.2f} G weights are stored in {bits} bits and expanded to {str(compute)[6:]} for "
            "each product; parameters count their bytes, and the expansion has no price in the backward pass",
            Site(path, lines["bits"]),
        )
    targets = [*_names(said.get("targets")), *_names(said.get("also_targets"))]
    own = said.get("adapters", "float32")
    chosen = targets or list(_DEFAULT_TARGETS)
    dropout = float(said.get("dropout") or 0)
    adapted = at_line(
        path, lines["rank"], lambda: adapt(model, int(rank), chosen, dropout, getattr(torch, own))
    )
    if not adapted:
        names = ", ".join(map(str, chosen))
        raise TargetError(f"{said['model']} has none of the layers that get adapters: {names}.")
    by = "" if targets else ", peft's choice where a file names none"
    what = f"LoRA of rank {rank} on {', '.join(adapted)}{by}; its weights are {own}"
    whole = train_whole(model, _names(said.get("also_trained")))
    if whole:
        what += f"; {', '.join(whole)} trained whole, beside the originals"
    yield Assumption(what, Site(path, lines["rank"]))


def _names(given: Any) -> list[str]:
    """Names of layers, however a file lists them."""
    return [given] if isinstance(given, str) else [str(name) for name in given or ()]


def _inputs(length: int) -> dict[str, Any]:
    import torch

    return {name: torch.zeros(1, length, dtype=torch.int64) for name in ("input_ids", "labels")}
