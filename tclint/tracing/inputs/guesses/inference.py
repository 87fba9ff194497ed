"""Inputs for a model that nobody gave: what the model states about itself, else what its first layers take.

The first guess is the likeliest; the others are tried in turn where its forward fails. The policy: batch 8;
224x224 images, 112x112 videos of 16 frames, a second of audio at 16 kHz, other signals of 1,024 samples,
sequences of 128, unless the model states a size. The graph says what was assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import chain
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tclint.graph.ops import Assumption
from tclint.tracing.inputs.forward_arguments import are_texts, parameters_of, required_arguments
from tclint.tracing.inputs.given import ADVICE, CallInputs, InferenceFailed, described, inputs_of_graph
from tclint.tracing.inputs.guesses.customary_sizes import customary_sizes
from tclint.tracing.inputs.guesses.diffusers_inputs import diffusers_inputs
from tclint.tracing.inputs.guesses.example_calls import Origin, example_calls
from tclint.tracing.inputs.guesses.inputs_from_usage import parts_of, state_for
from tclint.tracing.inputs.guesses.layer_inputs import (
    BATCH,
    first_leaf,
    from_layers,
    from_parameters,
    maker_for,
)
from tclint.tracing.inputs.guesses.named_inputs import (
    AUDIO_SAMPLES,
    are_graphs_of_nodes,
    are_images,
    are_labels,
    are_latents,
    are_lengths,
    are_times,
    by_name,
    configured_inputs,
    floating_dtype,
    further_inputs,
    is_context,
    may_be_images,
    target_argument,
)
from tclint.tracing.inputs.guesses.number_inputs import numbers_for
from tclint.tracing.inputs.guesses.project_sizes import ProjectSizes, project_sizes
from tclint.tracing.inputs.stated_sizes import (
    LATENT_FACTOR,
    SEQUENCE_LENGTH,
    attribute,
    image_sizes,
    number,
    sequence_length,
    stated_image,
    width,
)
from tclint.tracing.inputs.uses.argument_facts import LENGTHS, WAVEFORM, Use
from tclint.tracing.inputs.uses.consumers import uses_of

_META = torch.device("meta")

EDGES = 4096
CORA = (2708, 10556)
"""Nodes and edges of the graph on which networks of graphs are mostly tried first."""
_MAX_GUESSES = 20


def infer_inputs(model: nn.Module, origin: Origin | None = None) -> CallInputs:
    """The likeliest inputs for the model's forward, with the other guesses as their alternatives.

    Args:
        origin: the user's file that the model comes from, which may say more about them.

    Raises:
        InferenceFailed: with the reason.
    """
    guesses: list[CallInputs] = []
    seen: set[str] = set()
    made = _guesses(model) if origin is None else _in_project(_guesses(model), origin)
    made = _customary(made, model)
    latent = chain.from_iterable(_with_latents(one, model) for one in made)
    labelled = chain.from_iterable(_with_labels(one, model) for one in latent)
    for guess in chain.from_iterable(_with_targets(one, model) for one in labelled):
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


def guesses_for(name: str, first: torch.Tensor, model: nn.Module) -> list[Any]:
    """Values for one more argument of the model's forward beside a first tensor, likeliest first."""
    if are_times(name):
        return list(by_name(name, first, model))
    use = uses_of(model).get(name)
    return (_for_use(use, model, separate=False) if use is not None else []) or by_name(name, first, model)


def _guesses(model: nn.Module) -> Iterator[CallInputs]:
    for stated in _stated(model):
        yield dataclasses.replace(stated, basis="stated")
    if (made := diffusers_inputs(model, BATCH)) is not None:
        listed = ", ".join(f"{name} = {described(value)}" for name, value in made.items())
        yield _guess((), made, f"inputs {listed}, by diffusers' names and config")
    yield from _transformers_inputs(model)
    numbers = numbers_for(model)
    required = [name for name in required_arguments(model) if name not in numbers]
    if not numbers:
        yield from _for_required(required, model)
        return
    listed = ", ".join(f"{name} = {value}" for name, value in numbers.items())
    if not required:
        yield _guess((), dict(numbers), f"input {listed}, by annotation or use")
        return
    for guess in _for_required(required, model):
        *others, last = guess.assumptions
        what = f"{last.what.removesuffix(ADVICE)}; {listed}, by annotation or use{ADVICE}"
        kwargs = {**dict(zip(required, guess.args, strict=False)), **guess.kwargs, **numbers}
        yield dataclasses.replace(guess, args=(), kwargs=kwargs, assumptions=(*others, Assumption(what)))


def _in_project(guesses: Iterator[CallInputs], origin: Origin) -> Iterator[CallInputs]:
    """What the model states itself, what its file and the scripts beside it say, then the rest."""
    sizes: ProjectSizes | None = None
    for guess in _own(guesses, example_calls(origin, BATCH)):
        if guess.basis == "stated":
            yield guess
            continue
        sizes = project_sizes(origin) if sizes is None else sizes
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


def _with_labels(guess: CallInputs, model: nn.Module) -> Iterator[CallInputs]:
    """A model that generates by class is trained with one class for each example."""
    names = [
        name for name, given in parameters_of(model).items() if given.default is None and are_labels(name)
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
            *others, last = guess.assumptions
            what = f"{last.what.removesuffix(ADVICE)}; {name} = {described(labels)}, by its name{ADVICE}"
            yield dataclasses.replace(
                guess,
                kwargs={**guess.kwargs, name: labels},
                assumptions=(*others, Assumption(what, last.site)),
            )
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
        *others, last = guess.assumptions
        what = f"{last.what.removesuffix(ADVICE)}; {name} = {described(targets)}, to train on{ADVICE}"
        yield dataclasses.replace(
            guess, kwargs={**guess.kwargs, name: targets}, assumptions=(*others, Assumption(what))
        )
    yield guess


def _for_required(required: list[str], model: nn.Module) -> Iterator[CallInputs]:
    if not required:
        assumption = Assumption("the model was called without inputs, because its forward requires none")
        yield CallInputs((), {}, (assumption,), "inferred")
        return
    first, *others = required
    if others == ["edge_index"]:
        yield from _graph_of_nodes(first, model)
    if (image := _stated_image(first, model)) is not None:
        yield from _with_others(first, others, image, "of the size the model states", model)
    yield from _from_uses(required, uses_of(model), model)
    for tensor, reason in chain(from_layers(model), _of_stated_width(model), from_parameters(model)):
        yield from _with_others(first, others, tensor, reason, model)


def _with_others(
    first: str, others: list[str], tensor: torch.Tensor, reason: str, model: nn.Module
) -> Iterator[CallInputs]:
    """The first argument with values for the others beside it."""
    what = f"input {first} = {described(tensor)}, {reason}"
    if not others:
        yield _guess((tensor,), {}, what)
    for further in further_inputs(others, tensor, model):
        listed = ", ".join(
            f"{name} = {described(value)}" for name, value in zip(others, further, strict=True)
        )
        yield _guess((tensor, *further), {}, f"{what}; {listed}, by their names and the first")


def _graph_of_nodes(first: str, model: nn.Module) -> Iterator[CallInputs]:
    made = (tensor.shape[-1] for tensor, _ in chain(from_layers(model), from_parameters(model)))
    width = number(model, "in_channels", "num_features") or next(made, None)
    if width is not None:
        nodes = torch.empty((CORA[0], width), dtype=floating_dtype(model), device=_META)
        edges = torch.empty((2, CORA[1]), dtype=torch.int64, device=_META)
        what = f"inputs {first} = {described(nodes)}, edge_index = {described(edges)}, as many as Cora has"
        yield _guess((nodes, edges), {}, what)


def _stated_image(name: str, model: nn.Module) -> torch.Tensor | None:
    stated = stated_image(model) if may_be_images(name) else None
    if stated is None or not any(weight.dim() == 4 for weight in model.parameters()):
        return None
    return torch.empty((BATCH, *stated), dtype=floating_dtype(model), device=_META)


def _of_stated_width(model: nn.Module) -> Iterator[tuple[torch.Tensor, str]]:
    stated = width(model)
    if stated is not None:
        for shape in ((BATCH, sequence_length(model), stated), (BATCH, stated)):
            tensor = torch.empty(shape, dtype=floating_dtype(model), device=_META)
            yield tensor, "of the width the model states"


def _guess(args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> CallInputs:
    return CallInputs(args, kwargs, (Assumption(f"{what}{ADVICE}"),), "inferred")


# ---------------------------------------------------------------- what models state


def _stated(model: nn.Module) -> Iterator[CallInputs]:
    example = attribute(model, "example_input_array")  # Lightning
    if example is not None:
        args, kwargs = _as_call(example)
        yield _guess(args, kwargs, "inputs as the model's example_input_array states")
    config = attribute(model, "pretrained_cfg", "default_cfg")  # timm
    if isinstance(config, Mapping) and config.get("input_size") is not None:
        tensor = torch.empty((BATCH, *config["input_size"]), dtype=floating_dtype(model), device=_META)
        yield _guess((tensor,), {}, f"input = {described(tensor)}, as the model's default_cfg states")
    recorded = inputs_of_graph(model)
    if recorded is not None:
        listed = ", ".join(described(tensor) for tensor in recorded)
        yield _guess(recorded, {}, f"inputs {listed}, which the model was exported with")


def _transformers_inputs(model: nn.Module) -> Iterator[CallInputs]:
    """By the main input that models of transformers name, with the sizes of their configuration."""
    for made in configured_inputs(model, required_arguments(model), BATCH):
        listed = ", ".join(f"{name} = {described(tensor)}" for name, tensor in made.items())
        yield _guess((), made, f"inputs {listed}, by the model's main_input_name and config")
    dummies = attribute(model, "dummy_inputs")
    if isinstance(dummies, Mapping) and set(dummies) <= set(parameters_of(model)):
        yield _guess((), dict(dummies), "inputs as the model's dummy_inputs states")


def _as_call(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, Mapping):
        return (), dict(value)
    return (tuple(value) if isinstance(value, (list, tuple)) else (value,)), {}


# ---------------------------------------------------------------- what the source of the forward shows


def _from_uses(required: list[str], uses: dict[str, Use], model: nn.Module) -> Iterator[CallInputs]:
    """Inputs for the layer that each argument goes to, where the forward's source shows it."""
    known = {
        name: use
        for name in required
        if (use := uses.get(name)) is not None
        and not ((are_lengths(name) or use.role == LENGTHS) and len(required) > 1)
        and not (use.is_index and are_images(name))
        and not are_graphs_of_nodes(name, model)
    }
    separate = _are_separate_indices(known, model)
    choices = {
        name: _for_use(use, model, separate=are_labels(name) or (separate and not are_texts(name)))
        for name, use in known.items()
    }
    for name in filter(is_context, choices):
        choices[name].sort(key=lambda value: not isinstance(value, torch.Tensor) or value.dim() != 3)
    _add_joined(choices, known, model)
    if not any(_is_floating(made) for made in choices.values()):
        # The width of what is joined or gets another dim is only a beginning.
        for name, use in known.items():
            if not use.is_direct and not choices[name]:
                choices[name] = _for_use(dataclasses.replace(use, is_direct=True), model, separate=separate)
    if any(_is_time_first(use) for use in known.values()):
        choices = {name: [_time_first(value) for value in made] for name, made in choices.items()}
    if not any(choices.values()):
        return
    lead = next((made[0] for made in choices.values() if made and isinstance(made[0], torch.Tensor)), None)
    by_layer = {name for name, made in choices.items() if made}
    for name in required:
        if name not in by_layer:
            if lead is None:
                return
            is_length = name in uses and uses[name].role == LENGTHS
            choices[name] = by_name(LENGTHS if is_length else name, lead, model)
    names = {id(module): name for name, module in model.named_modules()}
    reasons = {name: _reason(known[name], names) if name in by_layer else "" for name in required}
    for index in range(max(map(len, choices.values()))):
        made = {name: choices[name][min(index, len(choices[name]) - 1)] for name in required}
        listed = ", ".join(f"{name} = {described(value)}{reasons[name]}" for name, value in made.items())
        yield _guess(tuple(made.values()), {}, f"{'input' if len(made) == 1 else 'inputs'} {listed}")


def _reason(use: Use, names: dict[int, str]) -> str:
    leaf = None if use.is_index or "mask" in use.role else first_leaf(use.layer)
    name = names.get(id(leaf), "")
    if leaf is None:
        return ", the waveform that stft takes" if use.role == WAVEFORM else ""
    shown = f"{type(leaf).__name__}{f' {name!r}' if name else ''}"
    return f", inferred from the first layer that takes it ({shown})"


def _for_use(use: Use, model: nn.Module, *, separate: bool) -> list[Any]:
    if use.keys:
        parts = {key: _for_use(item, model, separate=separate) for key, item in use.keys.items()}
        lead = next((made[0] for made in parts.values() if made), None)
        if not isinstance(lead, torch.Tensor):
            return []
        whole = {key: made[0] if made else by_name(key, lead, model)[0] for key, made in parts.items()}
        return [SimpleNamespace(**whole) if use.by_attribute else whole]
    if use.is_index and use.layer is None:
        edges = torch.empty((max(use.parts, 1), EDGES), dtype=torch.int64, device=_META)
        return [edges if use.parts else edges[0]]
    if use.role == WAVEFORM and use.layer is None:
        return [torch.empty((BATCH, AUDIO_SAMPLES), dtype=floating_dtype(model), device=_META)]
    if use.width is not None:
        return [torch.empty((BATCH, *middle, use.width), device=_META) for middle in ((), (64,))]
    if "mask" in use.role:
        length = sequence_length(model)
        shape = (BATCH, length) if "padding" in use.role else (length, length)
        return [torch.zeros(shape, dtype=dtype) for dtype in (torch.bool, torch.float32)]
    leaf = first_leaf(use.layer)
    maker = None if leaf is None else maker_for(leaf)
    if leaf is None or maker is None:
        return []
    if use.position and isinstance(leaf, (nn.RNNBase, nn.RNNCellBase)):
        state = state_for(leaf, BATCH, is_part=use.is_part)
        return [] if state is None else [state]
    if not use.is_direct and isinstance(leaf, nn.Linear):
        return []
    made = list(maker(leaf, model))
    if use.is_unsqueezed and isinstance(leaf, nn.RNNBase):
        made.insert(0, torch.empty((BATCH, leaf.input_size), device=_META))
    if isinstance(leaf, nn.EmbeddingBag) and use.position == 1:
        made = [torch.arange(BATCH) * SEQUENCE_LENGTH]
    if use.iterated:
        return [[part] * use.iterated for part in made]
    if isinstance(leaf, nn.Embedding):
        if use.layers > 1:
            made.insert(0, torch.empty((BATCH, use.layers), dtype=torch.int64, device=_META))
        elif separate:
            made.reverse()
    return made


def _add_joined(choices: dict[str, list[Any]], known: Mapping[str, Use], model: nn.Module) -> None:
    """What is concatenated before a layer takes it has that layer's width together."""
    for names in dict.fromkeys(use.joined for use in known.values() if use.joined):
        layers = {first_leaf(known[name].layer) if name in known else None for name in names}
        leaf = layers.pop() if len(layers) == 1 else None
        maker = None if leaf is None else maker_for(leaf)
        if leaf is not None and maker is not None and not isinstance(leaf, nn.Embedding):
            choices.update(parts_of(list(maker(leaf, model)), names, leaf, model))


def _is_time_first(use: Use) -> bool:
    """Whether the argument is the state of a layer that takes time before the batch."""
    return use.position == 1 and isinstance(use.layer, nn.RNNBase) and not use.layer.batch_first


def _time_first(value: Any) -> Any:
    is_words = isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point()
    return value.t() if is_words else value


def _is_floating(made: list[Any]) -> bool:
    return bool(made) and isinstance(made[0], torch.Tensor) and made[0].is_floating_point()


def _are_separate_indices(uses: Mapping[str, Use], model: nn.Module) -> bool:
    """Whether what is looked up in tables is one index for each example, and no sequence of them.

    Users and items have tables of their own and nothing looks along a sequence; labels and time steps stand
    beside an image, and the kinds of a graph's nodes beside the two ends of its edges.
    """
    if any(use.is_index and use.parts == 2 and "edge" in name.lower() for name, use in uses.items()):
        return True
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
