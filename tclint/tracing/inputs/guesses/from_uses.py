"""Inputs for the layers that the arguments of a forward go to, as its source shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from tclint.tracing.inputs.forward import are_texts
from tclint.tracing.inputs.given import CallInputs, described, inferred, listed
from tclint.tracing.inputs.guesses.layer_inputs import BATCH, first_leaf, maker_for
from tclint.tracing.inputs.guesses.named_inputs import (
    are_images,
    are_labels,
    are_lengths,
    are_times,
    by_name,
    is_context,
)
from tclint.tracing.inputs.uses.followed_calls import ArgumentUse

_META = torch.device("meta")


def from_uses(required: list[str], uses: dict[str, ArgumentUse], model: nn.Module) -> Iterator[CallInputs]:
    """Inputs for the layer that each argument goes to, where the forward's source shows it."""
    known = {
        name: use
        for name in required
        if (use := uses.get(name)) is not None
        and not (are_lengths(name) and len(required) > 1)
        and not (use.is_index and are_images(name))
        and not _is_embedded_time(name, use)
    }
    separate = _are_separate_indices(known, model)
    choices = {
        name: for_use(use, model, separate=are_labels(name) or (separate and not are_texts(name)))
        for name, use in known.items()
    }
    for name in filter(is_context, choices):
        choices[name].sort(key=lambda value: not isinstance(value, torch.Tensor) or value.dim() != 3)
    if not any(_is_floating(made) for made in choices.values()):
        # The width of what is joined or gets another dim is only a beginning.
        for name, use in known.items():
            if not use.is_direct and not choices[name]:
                choices[name] = for_use(dataclasses.replace(use, is_direct=True), model, separate=separate)
    if any(use.position == 1 and _is_time_first(use.layer) for use in known.values()):  # a state
        choices = {name: [_time_first(value) for value in made] for name, made in choices.items()}
    if not any(choices.values()):
        return
    lead = next((made[0] for made in choices.values() if made and isinstance(made[0], torch.Tensor)), None)
    by_layer = {name for name, made in choices.items() if made}
    for name in required:
        if name not in by_layer:
            if lead is None:
                return
            like = next((other for other in required if _is_read_as(name, other, uses)), name)
            choices[name] = by_name(like, lead, model)
    names = {id(module): name for name, module in model.named_modules()}
    reasons = {name: _reason(known[name], names) if name in by_layer else "" for name in required}
    for index in range(max(map(len, choices.values()))):
        made = {name: choices[name][min(index, len(choices[name]) - 1)] for name in required}
        told = ", ".join(f"{name} = {described(value)}{reasons[name]}" for name, value in made.items())
        if not index and any(map(are_lengths, required)) and _takes_time_first(model):
            turned = {
                name: value if are_lengths(name) else _time_first(value) for name, value in made.items()
            }
            yield inferred(tuple(turned.values()), {}, f"inputs {listed(turned)}, time before batch")
        yield inferred(tuple(made.values()), {}, f"{'input' if len(made) == 1 else 'inputs'} {told}")


def _reason(use: ArgumentUse, names: dict[int, str]) -> str:
    leaf = None if use.is_index else first_leaf(use.layer)
    name = names.get(id(leaf), "")
    if leaf is None:
        return ""
    shown = f"{type(leaf).__name__}{f' {name!r}' if name else ''}"
    return f", inferred from the first layer that takes it ({shown})"


def for_use(use: ArgumentUse, model: nn.Module, *, separate: bool) -> list[Any]:
    """Values for one argument, likeliest first; none where nothing tells its shape.

    Args:
        separate: whether an index is one for each example, and no sequence of them.
    """
    leaf = first_leaf(use.layer)
    maker = None if leaf is None else maker_for(leaf)
    if leaf is None or maker is None:
        return []
    if use.position and isinstance(leaf, nn.RNNBase):
        return [_state_of(leaf)]
    if not use.is_direct and isinstance(leaf, nn.Linear):
        return []
    made = list(maker(leaf, model))
    if separate and isinstance(leaf, nn.Embedding):
        made.reverse()
    return made


def _state_of(layer: nn.RNNBase) -> Any:
    """What a recurrent layer is called with beside its input."""
    depth = layer.num_layers * (2 if layer.bidirectional else 1)
    hidden = torch.empty((depth, BATCH, layer.proj_size or layer.hidden_size), device=_META)
    cell = torch.empty((depth, BATCH, layer.hidden_size), device=_META)
    return (hidden, cell) if isinstance(layer, nn.LSTM) else hidden


def _is_embedded_time(name: str, use: ArgumentUse) -> bool:
    """Whether a layer reads what functions made of a step of diffusion, not the number that it is."""
    leaf = first_leaf(use.layer)
    return are_times(name) and isinstance(leaf, nn.Linear) and leaf.in_features > 1


def _is_read_as(name: str, time: str, uses: Mapping[str, ArgumentUse]) -> bool:
    """Whether an argument goes the way of one that is a step of diffusion: the start of an interval, say."""
    one, other = uses.get(name), uses.get(time)
    if one is None or other is None or are_times(name) or not _is_embedded_time(time, other):
        return False
    return one.is_direct == other.is_direct and repr(first_leaf(one.layer)) == repr(first_leaf(other.layer))


def _is_time_first(layer: nn.Module | None) -> bool:
    """Whether it takes time before the batch."""
    return isinstance(layer, nn.RNNBase) and not layer.batch_first


def _takes_time_first(model: nn.Module) -> bool:
    layers = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    return bool(layers) and all(map(_is_time_first, layers))


def _time_first(value: Any) -> Any:
    is_words = isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point()
    return value.t() if is_words else value


def _is_floating(made: list[Any]) -> bool:
    return bool(made) and isinstance(made[0], torch.Tensor) and made[0].is_floating_point()


def _are_separate_indices(uses: Mapping[str, ArgumentUse], model: nn.Module) -> bool:
    """Whether what is looked up in tables is one index for each example, and no sequence of them.

    Users and items have tables of their own and nothing looks along a sequence; labels and time steps stand
    beside an image.
    """
    leaves = [leaf for use in uses.values() if (leaf := first_leaf(use.layer)) is not None]
    if any(isinstance(leaf, _OF_IMAGES) for leaf in leaves):
        return True
    tables = {leaf for leaf in leaves if isinstance(leaf, nn.Embedding)}
    return len(tables) > 1 and not any(isinstance(module, _ALONG_SEQUENCES) for module in model.modules())


_OF_IMAGES = (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_ALONG_SEQUENCES = (
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.Conv1d,
    nn.Conv2d,
)
