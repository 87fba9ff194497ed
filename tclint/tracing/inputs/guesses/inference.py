"""Inputs for a model that nobody gave: what the model states about itself, else what its first layers take.

The first guess is the likeliest; the others are tried in turn where its forward fails. The policy: batch 8;
224x224 images, 112x112 videos of 16 frames, a second of audio at 16 kHz, other signals of 1,024 samples,
sequences of 128, unless the model states a size. The graph says what was assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import nn

from tclint.graph.ops import Assumption
from tclint.tracing.inputs.forward import parameters_of, required_arguments
from tclint.tracing.inputs.given import (
    ADVICE,
    CallInputs,
    InferenceFailed,
    by_keyword,
    described,
    inferred,
    inputs_of_graph,
    listed,
)
from tclint.tracing.inputs.guesses.diffusers_inputs import diffusers_inputs
from tclint.tracing.inputs.guesses.example_calls import ModelFiles
from tclint.tracing.inputs.guesses.from_uses import for_use, from_uses
from tclint.tracing.inputs.guesses.layer_inputs import (
    BATCH,
    COLOURS,
    from_layers,
    from_parameters,
)
from tclint.tracing.inputs.guesses.named_inputs import (
    are_images,
    are_times,
    by_name,
    configured_inputs,
    floating_dtype,
    further_inputs,
    may_be_images,
)
from tclint.tracing.inputs.guesses.number_inputs import numbers_for, time_series
from tclint.tracing.inputs.guesses.variants import with_variants
from tclint.tracing.inputs.stated_sizes import (
    attribute,
    image_sizes,
    number,
    stated_image,
    states_image,
)
from tclint.tracing.inputs.uses.consumers import uses_of

_META = torch.device("meta")

CORA = (2708, 10556)
"""Nodes and edges of Cora, the graph that graph neural networks are usually tried on first."""
PUBMED = (19_717, 88_648)
"""Nodes and edges of PubMed, the largest of the three citation graphs that papers report together."""
_MAX_GUESSES = 20


def infer_inputs(model: nn.Module, origin: ModelFiles | None = None) -> CallInputs:
    """The likeliest inputs for the model's forward, with the other guesses as their alternatives.

    Args:
        origin: the user's file that the model comes from, which may say more about them.

    Raises:
        InferenceFailed: with the reason.
    """
    guesses: list[CallInputs] = []
    seen: set[str] = set()
    made = (by_keyword(_as_stated(guess, model), model) for guess in _guesses(model))
    for guess in with_variants(made, model, origin):
        text = guess.describe()
        if text not in seen:
            seen.add(text)
            guesses.append(guess)
        if len(guesses) == _MAX_GUESSES:
            break
    if not guesses:
        required = required_arguments(model)
        takes = f"its forward takes {len(required)} arguments ({', '.join(required)}) and "
        raise InferenceFailed(
            f"{takes if len(required) > 1 else ''}no layer of it tells the shape of its input"
        )
    return dataclasses.replace(guesses[0], alternatives=tuple(guesses[1:]))


def _as_stated(guess: CallInputs, model: nn.Module) -> CallInputs:
    """The guess, which is none where the model states the size of its pictures."""
    values = (*guess.args, *guess.kwargs.values())
    sizes = [
        tuple(value.shape[2:]) for value in values if isinstance(value, torch.Tensor) and value.dim() == 4
    ]
    return (
        dataclasses.replace(guess, basis="stated")
        if any(states_image(model, size) for size in sizes)
        else guess
    )


def guesses_for(name: str, first: torch.Tensor, model: nn.Module) -> list[Any]:
    """Values for one more argument of the model's forward beside a first tensor, likeliest first."""
    if are_times(name):
        return list(by_name(name, first, model))
    use = uses_of(model).get(name)
    return (for_use(use, model, separate=False) if use is not None else []) or by_name(name, first, model)


def _guesses(model: nn.Module) -> Iterator[CallInputs]:
    for stated in _stated(model):
        yield dataclasses.replace(stated, basis="stated")
    if (made := diffusers_inputs(model, BATCH)) is not None:
        yield inferred((), made, f"inputs {listed(made)}, by diffusers' names and config")
    yield from _transformers_inputs(model)
    numbers = numbers_for(model)
    required = [name for name in required_arguments(model) if name not in numbers]
    if not numbers:
        yield from _for_required(required, model)
        return
    told = listed(numbers)
    if not required:
        yield inferred((), dict(numbers), f"input {told}, by annotation")
        return
    for guess in _for_required(required, model):
        *others, last = guess.assumptions
        what = f"{last.what.removesuffix(ADVICE)}; {told}, by annotation{ADVICE}"
        kwargs = {**dict(zip(required, guess.args, strict=False)), **guess.kwargs, **numbers}
        yield dataclasses.replace(guess, args=(), kwargs=kwargs, assumptions=(*others, Assumption(what)))


def _for_required(required: list[str], model: nn.Module) -> Iterator[CallInputs]:
    if not required:
        assumption = Assumption("the model was called without inputs, because its forward requires none")
        yield CallInputs((), {}, (assumption,), "inferred")
        return
    first, *others = required
    yield from time_series(required, model, BATCH)
    if others in (["edge_index"], ["adj"], ["edge_index", "batch"]):
        yield from _graph_of_nodes(required, model)
    if (image := _stated_image(first, model)) is not None:
        yield from _with_others(first, others, image, "of the size the model states", model)
    yield from from_uses(required, uses_of(model), model)
    for tensor, reason in chain(from_layers(model), from_parameters(model)):
        yield from _with_others(first, others, tensor, reason, model)


def _with_others(
    first: str, others: list[str], tensor: torch.Tensor, reason: str, model: nn.Module
) -> Iterator[CallInputs]:
    """The first argument with values for the others beside it."""
    what = f"input {first} = {described(tensor)}, {reason}"
    if not others:
        yield inferred((tensor,), {}, what)
    for further in further_inputs(others, tensor, model):
        named = dict(zip(others, further, strict=True))
        made = inferred((tensor, *further), {}, f"{what}; {listed(named)}, by their names and the first")
        yield dataclasses.replace(made, is_partly_made_up=any(value.dim() > 1 for value in further))


def _graph_of_nodes(required: list[str], model: nn.Module) -> Iterator[CallInputs]:
    widths = (tensor.shape[-1] for tensor, _ in chain(from_layers(model), from_parameters(model)))
    width = number(model, "in_channels", "num_features") or next(widths, None)
    if width is not None:
        nodes = torch.empty((CORA[0], width), dtype=floating_dtype(model), device=_META)
        edges = torch.empty((2, CORA[1]), dtype=torch.int64, device=_META)
        if required[1] == "adj":
            edges = nodes.new_empty((CORA[0], CORA[0]))
        graph_of_each = torch.empty(CORA[:1], dtype=torch.int64, device=_META)
        made = dict(zip(required, (nodes, edges, graph_of_each), strict=False))
        yield inferred(tuple(made.values()), {}, f"inputs {listed(made)}, as many as Cora has")


def _stated_image(name: str, model: nn.Module) -> torch.Tensor | None:
    stated = stated_image(model) if may_be_images(name) else None
    if stated is None and are_images(name) and (sizes := image_sizes(model)):
        stated = (COLOURS, *sizes[0])
    # What is called x may be pictures where something reads pictures.
    if stated is None or not (are_images(name) or any(weight.dim() == 4 for weight in model.parameters())):
        return None
    return torch.empty((BATCH, *stated), dtype=floating_dtype(model), device=_META)


# ---------------------------------------------------------------- what models state


def _stated(model: nn.Module) -> Iterator[CallInputs]:
    example = attribute(model, "example_input_array")  # Lightning
    if example is not None:
        args, kwargs = _as_call(example)
        yield inferred(args, kwargs, "inputs as the model's example_input_array states")
    config = attribute(model, "pretrained_cfg", "default_cfg")  # timm
    if isinstance(config, Mapping) and config.get("input_size") is not None:
        tensor = torch.empty((BATCH, *config["input_size"]), dtype=floating_dtype(model), device=_META)
        yield inferred((tensor,), {}, f"input = {described(tensor)}, as the model's default_cfg states")
    recorded = inputs_of_graph(model)
    if recorded is not None:
        told = ", ".join(described(tensor) for tensor in recorded)
        yield inferred(recorded, {}, f"inputs {told}, which the model was exported with")


def _transformers_inputs(model: nn.Module) -> Iterator[CallInputs]:
    """By the main input that models of transformers name, with the sizes of their configuration."""
    for made in configured_inputs(model, required_arguments(model), BATCH):
        yield inferred((), made, f"inputs {listed(made)}, by the model's main_input_name and config")
    dummies = attribute(model, "dummy_inputs")
    if isinstance(dummies, Mapping) and set(dummies) <= set(parameters_of(model)):
        yield inferred((), dict(dummies), "inputs as the model's dummy_inputs states")


def _as_call(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, Mapping):
        return (), dict(value)
    return (tuple(value) if isinstance(value, (list, tuple)) else (value,)), {}
