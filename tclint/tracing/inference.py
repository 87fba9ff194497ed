"""Inputs for a model that nobody gave: what the model states about itself, else what its first layers take.

The first guess is the likeliest; the others are tried in turn where its forward fails. The policy: batch 8;
224x224 images, 112x112 videos of 16 frames, signals of 1,024 samples, sequences of 128, unless the model
states a size. The graph says what was assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tclint.graph import Assumption
from tclint.tracing.consumers import uses_of
from tclint.tracing.einops_layers import is_einops, shapes_for
from tclint.tracing.examples import CallInputs, InferenceFailed, described, inputs_of_graph
from tclint.tracing.forward_arguments import parameters_of, required_arguments
from tclint.tracing.named_inputs import (
    are_lengths,
    by_name,
    configured_inputs,
    floating_dtype,
    further_inputs,
    tokens,
)
from tclint.tracing.stated_sizes import (
    IMAGE_SIZE,
    SEQUENCE_LENGTH,
    attribute,
    image_sizes,
    sequence_length,
    width,
)
from tclint.tracing.uses import Use

_META = torch.device("meta")

BATCH = 8
VIDEO_SIZE = (16, 112, 112)
SIGNAL_LENGTH = 1024
EDGES = 4096

# Tried in this order where 224 does not fit: sizes of common data sets and networks.
_OTHER_IMAGE_SIZES = (32, 28, 64, 256, 299, 384, 128, 96, 512)
_OTHER_SIGNAL_LENGTHS = (16000, 128)
_MAX_GUESSES = 20

_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
# The output projection of nn.MultiheadAttention: never called, only its weight is used.
_LINEAR_WITHOUT_FORWARD: Any = getattr(nn.modules.linear, "NonDynamicallyQuantizableLinear", ())


def infer_inputs(model: nn.Module) -> CallInputs:
    """The likeliest inputs for the model's forward, with the other guesses as their alternatives.

    Raises:
        InferenceFailed: with the reason.
    """
    guesses: list[CallInputs] = []
    seen: set[str] = set()
    for guess in _guesses(model):
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
    use = uses_of(model).get(name)
    return (_for_use(use, model, separate=False) if use is not None else []) or by_name(name, first, model)


def _guesses(model: nn.Module) -> Iterator[CallInputs]:
    yield from _stated(model)
    required = required_arguments(model)
    if not required:
        assumption = Assumption("the model was called without inputs, because its forward requires none")
        yield CallInputs((), {}, (assumption,), "inferred")
        return
    yield from _from_uses(required, uses_of(model), model)
    first, *others = required
    for tensor, reason in _from_layers(model):
        what = f"input {first} = {described(tensor)}, {reason}"
        if not others:
            yield _guess((tensor,), {}, what)
        for further in further_inputs(others, tensor, model):
            listed = ", ".join(
                f"{name} = {described(value)}" for name, value in zip(others, further, strict=True)
            )
            yield _guess((tensor, *further), {}, f"{what}; {listed}, by their names and the first")
    stated = width(model)
    if stated is not None and not others:
        for shape in ((BATCH, sequence_length(model), stated), (BATCH, stated)):
            tensor = torch.empty(shape, dtype=floating_dtype(model), device=_META)
            yield _guess((tensor,), {}, f"input {first} = {described(tensor)}, of the width the model states")


def _guess(args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> CallInputs:
    return CallInputs(args, kwargs, (Assumption(f"{what}; --input sets another"),), "inferred")


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
    yield from _transformers_inputs(model)


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
        if (use := uses.get(name)) is not None and not (are_lengths(name) and len(required) > 1)
    }
    separate = _are_separate_indices(known, model)
    choices = {name: _for_use(use, model, separate=separate) for name, use in known.items()}
    if not any(_is_floating(made) for made in choices.values()):
        # The width of what is joined or gets another dim is only a beginning.
        for name, use in known.items():
            if not use.is_direct and not choices[name]:
                choices[name] = _for_use(dataclasses.replace(use, is_direct=True), model, separate=separate)
    if not any(choices.values()):
        return
    lead = next((made[0] for made in choices.values() if made and isinstance(made[0], torch.Tensor)), None)
    by_layer = {name for name, made in choices.items() if made}
    for name in required:
        if name not in by_layer:
            if lead is None:
                return
            choices[name] = by_name(name, lead, model)
    names = {id(module): name for name, module in model.named_modules()}
    reasons = {name: _reason(known[name], names) if name in by_layer else "" for name in required}
    for index in range(max(map(len, choices.values()))):
        made = {name: choices[name][min(index, len(choices[name]) - 1)] for name in required}
        listed = ", ".join(f"{name} = {described(value)}{reasons[name]}" for name, value in made.items())
        yield _guess(tuple(made.values()), {}, f"{'input' if len(made) == 1 else 'inputs'} {listed}")


def _reason(use: Use, names: dict[int, str]) -> str:
    leaf = None if use.is_index or "mask" in use.role else _first_leaf(use.layer)
    name = names.get(id(leaf), "")
    if leaf is None:
        return ""
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
    if use.width is not None:
        return [torch.empty((BATCH, *middle, use.width), device=_META) for middle in ((), (64,))]
    if "mask" in use.role:
        length = sequence_length(model)
        shape = (BATCH, length) if "padding" in use.role else (length, length)
        return [torch.zeros(shape, dtype=dtype) for dtype in (torch.bool, torch.float32)]
    leaf = _first_leaf(use.layer)
    maker = None if leaf is None else _maker_for(leaf)
    if leaf is None or maker is None:
        return []
    if use.position and isinstance(leaf, nn.RNNBase):
        return []
    if not use.is_direct and isinstance(leaf, nn.Linear):
        return []
    made = list(maker(leaf, model))
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


def _is_floating(made: list[Any]) -> bool:
    return bool(made) and isinstance(made[0], torch.Tensor) and made[0].is_floating_point()


def _are_separate_indices(uses: Mapping[str, Use], model: nn.Module) -> bool:
    """Whether what is looked up in tables is one index for each example, and no sequence of them.

    Users and items have tables of their own and nothing looks along a sequence; labels and time steps stand
    beside an image.
    """
    leaves = [leaf for use in uses.values() if (leaf := _first_leaf(use.layer)) is not None]
    if any(isinstance(leaf, _OF_IMAGES) for leaf in leaves):
        return True
    tables = {leaf for leaf in leaves if isinstance(leaf, nn.Embedding)}
    return len(tables) > 1 and not any(isinstance(module, _ALONG_SEQUENCES) for module in model.modules())


def _first_leaf(layer: nn.Module | None) -> nn.Module | None:
    return None if layer is None else next((part for part in layer.modules() if _maker_for(part)), None)


# ---------------------------------------------------------------- what layers take


def _from_layers(model: nn.Module) -> Iterator[tuple[torch.Tensor, str]]:
    """Inputs for the first layers of each kind, in the order of registration."""
    kinds: set[Callable[..., Any]] = set()
    for name, layer in model.named_modules():
        maker = _maker_for(layer)
        if maker is None or maker in kinds:
            continue
        kinds.add(maker)
        order = "first layer" if len(kinds) == 1 else f"first {type(layer).__name__}"
        reason = f"inferred from the {order} ({type(layer).__name__}{f' {name!r}' if name else ''})"
        for tensor in maker(layer, model):
            yield tensor, reason


def _maker_for(layer: nn.Module) -> _Maker | None:
    # (That kind of Linear is the output projection of nn.MultiheadAttention, which is never called.)
    if isinstance(layer, _LINEAR_WITHOUT_FORWARD):
        return None
    if is_einops(layer):
        return _for_pattern
    return next((maker for types, maker in _MAKERS if isinstance(layer, types)), None)


def _floats(layer: nn.Module, *shape: int) -> torch.Tensor:
    weight = next(layer.parameters(), None)
    dtype = weight.dtype if weight is not None and weight.is_floating_point() else torch.float32
    return torch.empty(shape, dtype=dtype, device=_META)


def _for_embedding(_layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    yield tokens(model, BATCH)
    yield torch.empty((BATCH,), dtype=torch.int64, device=_META)


def _for_convolution(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    channels = layer.in_channels or 3  # a lazy layer takes any number
    rank = len(layer.kernel_size)
    if rank == 3:
        yield _floats(layer, BATCH, channels, *VIDEO_SIZE)
    elif isinstance(layer, nn.ConvTranspose2d):  # a generator grows its image from a point
        for side in (1, 4, 7, 16):
            yield _floats(layer, BATCH, channels, side, side)
    elif rank == 2:
        others = [(size, size) for size in (IMAGE_SIZE, *_OTHER_IMAGE_SIZES)]
        for size in (*image_sizes(model), *others):
            yield _floats(layer, BATCH, channels, *size)
        if channels % 3 == 0:
            yield _floats(layer, BATCH, 3, IMAGE_SIZE, IMAGE_SIZE)  # rearranged before the first layer
    else:
        for length in (SIGNAL_LENGTH, *_OTHER_SIGNAL_LENGTHS):
            yield _floats(layer, BATCH, channels, length)


def _for_recurrent(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    length = sequence_length(model)
    yield _floats(layer, *((BATCH, length) if layer.batch_first else (length, BATCH)), layer.input_size)
    yield _floats(layer, BATCH, 16 * SIGNAL_LENGTH)  # a spectrogram of a waveform comes first


def _for_cell(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    yield _floats(layer, BATCH, layer.input_size)
    yield _floats(layer, sequence_length(model), BATCH, layer.input_size)


def _for_bag(_layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    yield torch.empty((BATCH * SEQUENCE_LENGTH,), dtype=torch.int64, device=_META)
    yield tokens(model, BATCH)


def _for_norm(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    if isinstance(layer, nn.LayerNorm):
        yield _floats(layer, BATCH, sequence_length(model), *layer.normalized_shape)
    elif layer.num_features:
        rank = {"2": 2, "3": 3}.get(type(layer).__name__[-2], 0)
        yield _floats(
            layer, BATCH, layer.num_features, *VIDEO_SIZE[:1] * (rank == 3), *[IMAGE_SIZE] * min(rank, 2)
        )


def _for_attention(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    length = sequence_length(model)
    yield _floats(layer, *((BATCH, length) if layer.batch_first else (length, BATCH)), layer.embed_dim)


def _for_transformer(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    length = sequence_length(model)
    yield _floats(layer, *((BATCH, length) if layer.batch_first else (length, BATCH)), layer.d_model)


def _for_transformer_layer(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    attention, length = layer.self_attn, sequence_length(model)
    order = (BATCH, length) if attention.batch_first else (length, BATCH)
    yield _floats(layer, *order, attention.embed_dim)


def _for_pattern(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    for shape in shapes_for(layer, model, BATCH):
        yield torch.empty(shape, dtype=floating_dtype(model), device=_META)


def _for_linear(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    if layer.in_features:
        yield _floats(layer, BATCH, layer.in_features)
        yield _floats(layer, BATCH, sequence_length(model), layer.in_features)
        yield _floats(layer, BATCH, 64, 64, layer.in_features)


_Maker = Callable[[Any, nn.Module], Iterator[torch.Tensor]]
_MAKERS: tuple[tuple[tuple[type[nn.Module], ...], _Maker], ...] = (
    ((nn.Embedding,), _for_embedding),
    (_CONVOLUTIONS, _for_convolution),
    ((nn.RNNBase,), _for_recurrent),
    ((nn.RNNCellBase,), _for_cell),
    ((nn.EmbeddingBag,), _for_bag),
    ((nn.Transformer,), _for_transformer),
    ((nn.MultiheadAttention,), _for_attention),
    ((nn.modules.batchnorm._NormBase, nn.LayerNorm), _for_norm),
    ((nn.TransformerEncoderLayer, nn.TransformerDecoderLayer), _for_transformer_layer),
    ((nn.Linear,), _for_linear),
)


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
