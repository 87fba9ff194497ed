"""Inputs for a model that nobody gave: what the model states about itself, else what its first layers take.

The first guess is the likeliest; the others are tried in turn where its forward fails. The policy: batch 8;
224x224 images, 112x112 videos of 16 frames, signals of 1,024 samples, sequences of 128, unless the model
states a size. The graph says what was assumed.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from tclint.graph import Assumption
from tclint.tracing.examples import CallInputs, InferenceFailed, described
from tclint.tracing.named_inputs import configured_inputs, floating_dtype, further_inputs, tokens
from tclint.tracing.stated_sizes import IMAGE_SIZE, attribute, image_sizes, sequence_length

_META = torch.device("meta")

BATCH = 8
VIDEO_SIZE = (16, 112, 112)
SIGNAL_LENGTH = 1024

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
        required = _required_arguments(model)
        takes = f"its forward takes {len(required)} arguments ({', '.join(required)}) and "
        raise InferenceFailed(
            f"{takes if len(required) > 1 else ''}no layer of it tells the shape of its input"
        )
    return dataclasses.replace(guesses[0], alternatives=tuple(guesses[1:]))


def _guesses(model: nn.Module) -> Iterator[CallInputs]:
    yield from _stated(model)
    required = _required_arguments(model)
    if not required:
        assumption = Assumption("the model was called without inputs, because its forward requires none")
        yield CallInputs((), {}, (assumption,), "inferred")
        return
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
    yield from _transformers_inputs(model)


def _transformers_inputs(model: nn.Module) -> Iterator[CallInputs]:
    """By the main input that models of transformers name, with the sizes of their configuration."""
    for made in configured_inputs(model, _required_arguments(model), BATCH):
        listed = ", ".join(f"{name} = {described(tensor)}" for name, tensor in made.items())
        yield _guess((), made, f"inputs {listed}, by the model's main_input_name and config")
    dummies = attribute(model, "dummy_inputs")
    if isinstance(dummies, Mapping) and set(dummies) <= set(_parameters(model)):
        yield _guess((), dict(dummies), "inputs as the model's dummy_inputs states")


def _as_call(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, Mapping):
        return (), dict(value)
    return (tuple(value) if isinstance(value, (list, tuple)) else (value,)), {}


# ---------------------------------------------------------------- what layers take


def _from_layers(model: nn.Module) -> Iterator[tuple[torch.Tensor, str]]:
    """Inputs for the first layers of each kind, in the order of registration."""
    kinds: set[Callable[..., Any]] = set()
    for name, layer in model.named_modules():
        maker = next((maker for types, maker in _MAKERS if isinstance(layer, types)), None)
        # (That kind of Linear is the output projection of nn.MultiheadAttention, which is never called.)
        if maker is None or maker in kinds or isinstance(layer, _LINEAR_WITHOUT_FORWARD):
            continue
        kinds.add(maker)
        order = "first layer" if len(kinds) == 1 else f"first {type(layer).__name__}"
        reason = f"inferred from the {order} ({type(layer).__name__}{f' {name!r}' if name else ''})"
        for tensor in maker(layer, model):
            yield tensor, reason


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


def _for_transformer_layer(layer: Any, model: nn.Module) -> Iterator[torch.Tensor]:
    attention, length = layer.self_attn, sequence_length(model)
    order = (BATCH, length) if attention.batch_first else (length, BATCH)
    yield _floats(layer, *order, attention.embed_dim)


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
    ((nn.TransformerEncoderLayer, nn.TransformerDecoderLayer), _for_transformer_layer),
    ((nn.Linear,), _for_linear),
)


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return {}


def _required_arguments(model: nn.Module) -> list[str]:
    parameters = list(_parameters(model).values())
    if not parameters:
        try:
            inspect.signature(model.forward)
        except (TypeError, ValueError):
            return ["input"]
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not required:
        # `forward(self, *inputs)` and `forward(self, x=None)` mostly want an input all the same.
        required = [parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD][:1]
    return required
