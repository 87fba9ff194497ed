"""What else a guess may be: sized as the project or the family has it, with classes, with targets."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import nn

from tclint.core.toml import packaged_toml
from tclint.graph.ops import Assumption
from tclint.tracing.inputs.forward import parameters_of, required_arguments
from tclint.tracing.inputs.given import CallInputs, described
from tclint.tracing.inputs.guesses.example_calls import ModelFiles, example_calls
from tclint.tracing.inputs.guesses.layer_inputs import BATCH
from tclint.tracing.inputs.guesses.named_inputs import (
    are_labels,
    are_latents,
    are_targets,
    are_times,
    by_name,
    is_context,
    target_argument,
)
from tclint.tracing.inputs.guesses.project_sizes import ProjectSizes, StatedSize, project_sizes
from tclint.tracing.inputs.stated_sizes import LATENT_FACTOR, context_width, image_sizes, number


def customary_sizes(model: nn.Module) -> ProjectSizes | None:
    """None where the name tells no family; models of diffusion are of another kind than their U-Nets."""
    if any(map(are_times, parameters_of(model))):
        return None
    name = type(model).__name__.lower()
    for family in _families():
        if re.search(family["classes"], name):
            why = f"is customary for {family['name']}"
            if "samples" in family:
                return ProjectSizes(samples=StatedSize((family["samples"],), why))
            return ProjectSizes(StatedSize((family["side"], family["side"]), why))
    return None


@functools.cache
def _families() -> list[dict[str, Any]]:
    families: list[dict[str, Any]] = packaged_toml(__package__, "customary_sizes.toml")["family"]
    return families


_META = torch.device("meta")


def with_variants(
    guesses: Iterator[CallInputs], model: nn.Module, origin: ModelFiles | None
) -> Iterator[CallInputs]:
    """Every guess behind the variants of it that are likelier."""
    made = guesses if origin is None else _in_project(guesses, origin)
    made = _customary(made, model)
    latent = chain.from_iterable(_with_latents(one, model) for one in made)
    told = chain.from_iterable(_with_conditions(one, model) for one in latent)
    labelled = chain.from_iterable(_with_labels(one, model) for one in told)
    return chain.from_iterable(_with_targets(one, model) for one in labelled)


def _in_project(guesses: Iterator[CallInputs], origin: ModelFiles) -> Iterator[CallInputs]:
    """What the model states itself, what its file and the scripts beside it say, then the rest."""
    sizes: ProjectSizes | None = None
    for guess in _own(guesses, example_calls(origin, BATCH)):
        if guess.basis == "stated" and not guess.is_shown:
            yield guess
            continue
        sizes = project_sizes(origin) if sizes is None else sizes
        if guess.is_shown:
            yield dataclasses.replace(guess, is_shown=not sizes.hold(guess))
            continue
        if (sized := sizes.applied(guess, "stated")) is not None:
            yield sized
        yield guess


def _customary(guesses: Iterator[CallInputs], model: nn.Module) -> Iterator[CallInputs]:
    """The size of picture that models of the kind are trained on, where nothing states one."""
    sizes = customary_sizes(model)
    for guess in guesses:
        if sizes is not None and guess.basis != "stated":
            sized = sizes.applied(guess, "guess")
            if sized is not None:
                yield sized
        yield guess


def _own(guesses: Iterator[CallInputs], of_file: Iterator[CallInputs]) -> Iterator[CallInputs]:
    for guess in guesses:
        if guess.basis != "stated":
            yield from of_file
        yield guess
    yield from of_file


def _with_latents(guess: CallInputs, model: nn.Module) -> Iterator[CallInputs]:
    """What a decoder states is the size of the pictures that it makes; latents are smaller."""
    name = next(iter(parameters_of(model)), "")
    first = guess.args[0] if guess.args else None
    if are_latents(name) and isinstance(first, torch.Tensor) and tuple(first.shape[2:]) in image_sizes(model):
        *others, last = guess.assumptions
        made = first.new_empty((*first.shape[:2], *(side // LATENT_FACTOR for side in first.shape[2:])))
        what = last.what.replace(described(first), described(made))
        yield dataclasses.replace(
            guess, args=(made, *guess.args[1:]), assumptions=(*others, Assumption(what, last.site))
        )
    yield guess


def _with_conditions(guess: CallInputs, model: nn.Module) -> Iterator[CallInputs]:
    """A model of diffusion is told the step, and what it attends to where it states that one's width, also
    where its forward calls them optional."""
    parameters = parameters_of(model)
    first = next(iter((*guess.args, *guess.kwargs.values())), None)
    if any(map(are_times, parameters)) and isinstance(first, torch.Tensor) and first.is_floating_point():
        given = {*guess.kwargs, *[*parameters][: len(guess.args)]}
        absent = [
            name
            for name, parameter in parameters.items()
            if parameter.default is None
            and name not in given
            and (are_times(name) or (is_context(name) and context_width(model) is not None))
        ]
        if absent:
            yield guess.with_more({name: by_name(name, first, model)[0] for name in absent}, "by their names")
    yield guess


def _with_labels(guess: CallInputs, model: nn.Module) -> Iterator[CallInputs]:
    """A model that generates by class is trained with one class for each example."""
    names = [
        name
        for name, given in parameters_of(model).items()
        if given.default is None and are_labels(name) and (model.training or not are_targets(name))
    ]
    classes = number(model, "label_dim"), number(model, "num_classes", "n_classes")
    first = next(iter((*guess.args, *guess.kwargs.values())), None)
    if (
        names
        and any(classes)
        and isinstance(first, torch.Tensor)
        and first.is_floating_point()
        and first.dim() > 1
    ):
        name, width = names[0], classes[0]
        labels = torch.empty((first.shape[0],), dtype=torch.int64, device=_META)
        if width:  # the label as a vector (EDM, StyleGAN)
            labels = torch.empty((first.shape[0], width), dtype=first.dtype, device=_META)
        if name not in guess.kwargs and name not in required_arguments(model):
            yield guess.with_more({name: labels}, "by its name")
    yield guess


def _with_targets(guess: CallInputs, model: nn.Module) -> Iterator[CallInputs]:
    """Training a language model is to compare what it says with the targets, where its forward does that."""
    names = required_arguments(model)
    given = {**dict(zip(names, guess.args, strict=False)), **guess.kwargs}
    first, tokens = next(iter(given.items()), ("", None))
    are_tokens = isinstance(tokens, torch.Tensor) and tokens.dtype == torch.int64 and tokens.dim() == 2
    found = target_argument(model, first) if model.training and are_tokens else None
    if found is not None and found[0] not in given:
        name, shaped_like = found
        targets = torch.empty_like(given.get(shaped_like, tokens), device=_META)
        yield guess.with_more({name: targets}, "to train on")
    yield guess
