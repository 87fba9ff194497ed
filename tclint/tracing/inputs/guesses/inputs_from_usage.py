"""Inputs for arguments of which the source of the forward tells more than the layer that takes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import nn

from tclint.tracing.inputs.stated_sizes import number

_META = torch.device("meta")

_State: TypeAlias = "torch.Tensor | tuple[torch.Tensor, torch.Tensor]"


def state_for(layer: nn.Module, batch: int, *, is_part: bool) -> _State | None:
    """The state that a recurrent layer or cell is called with, beside its input.

    Args:
        is_part: the argument is one of the two tensors of an LSTM's state, and not both.
    """
    if isinstance(layer, nn.RNNBase):
        depth = layer.num_layers * (2 if layer.bidirectional else 1)
        hidden = torch.empty((depth, batch, layer.proj_size or layer.hidden_size), device=_META)
        cell = torch.empty((depth, batch, layer.hidden_size), device=_META)
    elif isinstance(layer, nn.RNNCellBase):
        hidden = torch.empty((batch, layer.hidden_size), device=_META)
        cell = torch.empty_like(hidden)
    else:
        return None
    return (hidden, cell) if isinstance(layer, (nn.LSTM, nn.LSTMCell)) and not is_part else hidden


def parts_of(
    made: Sequence[torch.Tensor], names: Sequence[str], layer: nn.Module, model: nn.Module
) -> dict[str, list[torch.Tensor]]:
    """Inputs that together, joined along their features, are what the layer takes.

    Args:
        made: inputs for the layer alone, likeliest first.
    """
    axis = 1 if isinstance(layer, nn.modules.conv._ConvNd) else -1
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for whole in made:
        shape = list(whole.shape)
        for name, width in zip(names, _split(shape[axis], names, model, axis), strict=True):
            shape[axis] = width
            parts[name].append(torch.empty(shape, dtype=whole.dtype, device=_META))
    return parts


def _split(total: int, names: Sequence[str], model: nn.Module, axis: int) -> list[int]:
    """What the model states for each, the rest in equal parts."""
    known = {name: size for name in names if (size := _stated(name, model, axis)) is not None}
    open_names = [name for name in names if name not in known]
    rest = total - sum(known.values())
    if rest < len(open_names) or (rest and not open_names):
        known, open_names, rest = {}, list(names), total
    share, more = divmod(rest, max(1, len(open_names)))
    sizes = {name: share + (index < more) for index, name in enumerate(open_names)}
    return [known.get(name, sizes.get(name, 1)) for name in names]


def _stated(name: str, model: nn.Module, axis: int) -> int | None:
    if axis == 1 and "mask" in name.lower():
        return 1
    if re.fullmatch(r"h|hx|h_?t|hidden(_state)?|(prev|last)_h(idden)?", name.lower()):
        return number(model, "hidden_size", "hidden_dim", "n_hidden")
    return number(
        model, *(f"{name}_{kind}" for kind in ("dim", "size", "channels")), f"n_{name}", f"num_{name}"
    )
