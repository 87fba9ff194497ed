"""Inputs for real runs that are more like what users feed than the stand-ins of the zoo.

The zoo gives zeros and ones, because a trace looks at shapes. A real run on one word repeated sends every
token to one expert, and a real run on zeros ties every score, so that both say little about usual data.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

Build = Callable[[], tuple[Any, Any]]

_WORDS = ("input_ids", "decoder_input_ids", "inputs", "qformer_input_ids")
# Low numbers stand for padding and for beginnings and ends.
_FIRST_WORD = 5
_SPECIAL = ("token_id", "token_ids", "token_index", "token_idx")
_SEED = 0


def with_different_words(build: Build) -> Build:
    """The same model and inputs, with different words where all are the same (the trace sees them too)."""

    def make() -> tuple[Any, Any]:
        model, inputs = build()
        if isinstance(inputs, dict):
            inputs = {name: _varied(name, value, model) for name, value in inputs.items()}
        return model, inputs

    return make


def _varied(name: str, value: Any, model: nn.Module) -> Any:
    if name not in _WORDS or not isinstance(value, torch.Tensor) or value.is_meta:
        return value
    if value.dtype != torch.int64 or value.dim() != 2:
        return value
    count = _vocabulary(model)
    special = set(_special_ids(getattr(model, "config", None)))
    words = [word for word in range(_FIRST_WORD, count) if word not in special]
    if len(words) < value.numel():
        return value
    draw = random.Random(_SEED)
    rows = [[draw.choice(words) if word == 1 else word for word in row] for row in value.tolist()]
    return torch.tensor(rows, dtype=torch.int64)


def _vocabulary(model: nn.Module) -> int:
    """The number of words: of the smallest table that has as many rows as some `vocab_size` says."""
    sizes = set(_settings(getattr(model, "config", None), ("vocab_size",)))
    tables = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)]
    return min((size for size in tables if size in sizes), default=0)


def _special_ids(config: Any) -> Iterator[int]:
    yield from _settings(config, _SPECIAL)


def _settings(config: Any, endings: tuple[str, ...], depth: int = 3) -> Iterator[int]:
    """Whole numbers in a configuration and its parts whose names end so."""
    values = vars(config) if hasattr(config, "__dict__") else config if isinstance(config, Mapping) else {}
    for name, value in list(values.items()):
        if isinstance(name, str) and name.endswith(endings):
            yield from (item for item in (value if isinstance(value, list) else [value]) if type(item) is int)
        elif depth and (hasattr(value, "to_dict") or isinstance(value, Mapping)):
            yield from _settings(value, endings, depth - 1)


def real_input(tensor: torch.Tensor) -> torch.Tensor:
    """The case's own values, else noise or ones of the same strides; zeros alone stand for noise."""
    given = not tensor.is_meta and (not tensor.is_floating_point() or bool(tensor.to_dense().any()))
    if given:
        return tensor
    real = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return real.normal_() if tensor.is_floating_point() else real.fill_(1)


def positive_input(tensor: torch.Tensor) -> torch.Tensor:
    """The same with noise between 0 and 1, for models that refuse other values."""
    real = real_input(tensor)
    return real if real is tensor or not real.is_floating_point() else real.uniform_()
