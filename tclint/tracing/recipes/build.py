"""Builds what a configuration file trains: its base model with added tokens, adapters and checkpoints."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tclint.core.errors import TargetError
from tclint.core.toml import packaged_toml
from tclint.graph.ops import Assumption, Site

_Found: TypeAlias = "tuple[Callable[[], Any], Sequence[Assumption]]"

_DEFAULT_TARGETS = ("q_proj", "v_proj", "query_key_value", "c_attn", "qkv_proj")
"""Layers of which peft adapts those that a model has, where a file names none (peft/utils/constants.py)."""


@dataclass(frozen=True, slots=True)
class _File:
    """A configuration file: what it says, as `find_recipe_model` takes it, and where."""

    path: str
    settings: Mapping[str, Any]
    lines: Mapping[str, int]

    def get(self, name: str, default: Any = None) -> Any:
        return self.settings.get(name, default)

    def names(self, *settings: str) -> list[str]:
        """Names of layers, however the file lists them."""
        found: list[str] = []
        for given in map(self.get, settings):
            found += [given] if isinstance(given, str) else [str(name) for name in given or ()]
        return found

    def at(self, name: str, call: Callable[[], Any]) -> Any:
        """What `call()` returns, called from the line that says something."""
        return at_line(self.path, self.lines[name], call)

    def note(self, name: str, what: str) -> Assumption:
        return Assumption(what, Site(self.path, self.lines[name]))


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
    try:
        transformers: Any = importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise TargetError(
            "its step takes the package transformers, which is not installed where tclint runs."
        ) from None
    file = _File(path, settings, lines)
    config, published, what = _configuration(transformers, file)
    model_class = _class_of(transformers, config, file)
    weights = str(file.get("weights", "float32"))
    weights = published if weights == "auto" else weights
    notes = [file.note("model", f"the model is {model_class.__name__} {what}")]

    def build() -> Any:
        with _default_dtype(weights):
            model = _base(model_class, config, file)
        notes[1:] = _adapted(model, file, weights) if file.get("rank") else ()
        if file.get("fused_loss"):
            fuse_loss(model)
        if file.get("checkpointing"):
            # transformers 5 has a new name for it.
            enable = getattr(model, "activation_checkpointing_enable", None)
            (enable or model.gradient_checkpointing_enable)()
        model.train()
        return model, _inputs(int(file.get("length")))

    return build, notes


def _configuration(transformers: Any, file: _File) -> tuple[Any, str, str]:
    """The configuration, the dtype of the published weights, and where both are from."""
    name = str(file.get("model"))
    beside = os.path.join(os.path.dirname(file.path), name)
    stored = next((folder for folder in (name, beside) if os.path.isdir(folder)), name)
    with contextlib.suppress(Exception):  # what cannot be loaded from here is looked up instead
        config = transformers.AutoConfig.from_pretrained(
            stored, local_files_only=True, trust_remote_code=False
        )
        dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or "float32"
        return config, str(dtype).removeprefix("torch."), f"with the stored configuration of {name}"
    known = known_model(name)
    if known is None:
        raise TargetError(
            f"the sizes of {name}, which line {file.lines['model']} names, are not known here: there is no "
            "folder or cached configuration of that name, and tclint's table does not have it."
        )
    config = transformers.CONFIG_MAPPING[known.model_type](**known.config)
    return config, known.dtype, f"with the sizes of {name} in {known.source}"


def _class_of(transformers: Any, config: Any, file: _File) -> Any:
    auto = importlib.import_module(f"{transformers.__name__}.models.auto.modeling_auto")
    found = getattr(transformers, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type, ""), None)
    if found is None:
        raise TargetError(
            f"{file.get('model')} is no causal language model of transformers, the only kind that is built "
            "here."
        )
    return found


def _base(model_class: Any, config: Any, file: _File) -> Any:
    """The model with the vocabulary that it is trained with."""
    config.use_cache = False
    if file.get("attention") == "eager":  # else transformers' choice, which is SDPA where a model can have it
        config._attn_implementation = "eager"
    model = file.at("model", lambda: model_class(config))
    added = file.get("tokens")
    if isinstance(added, list) and added:
        size, multiple = config.vocab_size + len(added), file.get("vocabulary_multiple")
        file.at(
            "tokens",
            lambda: model.resize_token_embeddings(size, pad_to_multiple_of=multiple, mean_resizing=False),
        )
    return model


@contextlib.contextmanager
def _default_dtype(name: str) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _adapted(model: Any, file: _File, weights: str) -> Iterator[Assumption]:
    """Quantize the base, and put adapters on it; what to say about it."""
    from tclint.tracing.recipes.adapters import adapt, quantize, train_whole

    rank, bits = int(file.get("rank")), file.get("bits")
    if bits:
        compute = getattr(torch, weights if weights != "float32" else "bfloat16")
        double = bool(file.get("double_quantized"))
        count = file.at("model", lambda: quantize(model, int(bits), compute, double_quantized=double))
        yield file.note(
            "bits",
            f"{count / 1e9:.2f} G weights are stored in {bits} bits and expanded to {str(compute)[6:]} for "
            "each product; parameters count their bytes, and the expansion has no price in the backward pass",
        )
    named = file.names("targets", "also_targets")
    chosen = named or list(_DEFAULT_TARGETS)
    dropout, dtype = float(file.get("dropout") or 0), file.get("adapters", "float32")
    adapted = file.at("rank", lambda: adapt(model, rank, chosen, dropout, getattr(torch, dtype)))
    if not adapted:
        raise TargetError(
            f"{file.get('model')} has none of the layers that get adapters: {', '.join(chosen)}."
        )
    by = "" if named else ", peft's choice where a file names none"
    what = f"LoRA of rank {rank} on {', '.join(adapted)}{by}; its weights are {dtype}"
    whole = train_whole(model, file.names("also_trained"))
    if whole:
        what += f"; {', '.join(whole)} trained whole, beside the originals"
    yield file.note("rank", what)


def _inputs(length: int) -> dict[str, Any]:
    return {name: torch.zeros(1, length, dtype=torch.int64) for name in ("input_ids", "labels")}


_CALL = lambda call: call()  # noqa: E731  (one line: the frame's line is the function's)


def at_line(path: str, line: int, call: Callable[[], Any]) -> Any:
    """What `call()` returns. Layers that it makes were made at that line of the file, to whoever walks the
    frames."""
    code = _CALL.__code__.replace(co_filename=path, co_firstlineno=line, co_name="recipe")
    return FunctionType(code, {})(call)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model's configuration, as far as it decides sizes."""

    model_type: str
    """transformers' name of its architecture."""
    config: Mapping[str, Any]
    dtype: str
    """That of its published weights."""
    source: str


def known_model(name: str) -> KnownModel | None:
    """The model of that id, or that torchtune or torchtitan calls so; None where the table has none."""
    table = packaged_toml("tclint.tracing.recipes", "sizes.toml")
    plain = _without(name.lower(), table["suffixes"])
    for row in table["model"]:
        patterns = [pattern.lower() for pattern in row["names"]]
        if any(fnmatchcase(one, pattern) for pattern in patterns for one in (name.lower(), plain)):
            return KnownModel(row["type"], row["config"], row["dtype"], row["source"])
    return None


def _without(name: str, suffixes: list[str]) -> str:
    while (found := next((end for end in suffixes if name.endswith(end)), None)) is not None:
        name = name.removesuffix(found)
    return name


_LEAST = 1024


def fuse_loss(model: Any) -> None:
    """Make the forward of a causal language model of transformers end in the loss, chunk by chunk of tokens.

    A chunk's logits are computed again for its gradients, which Liger computes in its forward at once: the
    product with the vocabulary is priced once more than its kernels run it.
    """
    decoder, head = model.base_model, model.get_output_embeddings()

    def forward(input_ids: Tensor, labels: Tensor) -> Tensor:
        """input_ids and labels (batch, tokens), int64 -> a number."""
        hidden = decoder(input_ids=input_ids)[0].flatten(0, 1)
        size = _chunk_size(len(hidden), head.weight.shape[0], head.weight.shape[1])
        parts = zip(hidden.split(size), labels.flatten().split(size), strict=True)
        losses = [checkpoint(_loss, head, part, wanted, use_reentrant=False) for part, wanted in parts]
        return sum(losses[1:], losses[0])

    model.forward = forward


def _loss(head: nn.Module, hidden: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(head(hidden).float(), labels, reduction="sum")


def _chunk_size(tokens: int, words: int, width: int) -> int:
    """Tokens whose logits take as much as the hidden states of all, rounded up to a power of two
    (liger_kernel/ops/fused_linear_cross_entropy.py), or _LEAST: autograd adds up the gradients of the head's
    weight chunk by chunk, which the kernels do in place."""
    chunks = -(-words // width)
    return max(_LEAST, 1 << max(-(-tokens // chunks) - 1, 0).bit_length())
