"""Inputs of a phase of a causal language model that answers: a prompt, or a token after a cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tclint.core.errors import TargetError
from tclint.graph.ops import Assumption
from tclint.tracing.inputs.forward import parameters_of, required_arguments
from tclint.tracing.inputs.given import CallInputs, InferenceFailed, described
from tclint.tracing.inputs.guesses.inference import guesses_for, infer_inputs
from tclint.tracing.inputs.guesses.layer_inputs import BATCH
from tclint.tracing.inputs.guesses.named_inputs import floating_dtype
from tclint.tracing.inputs.stated_sizes import attribute, stated_length
from tclint.tracing.session.build import on_meta
from tclint.tracing.session.trace import record
from tclint.tracing.values.cache import Cache, filled
from tclint.tracing.values.sites import SiteFinder

_META = torch.device("meta")
_CACHES = (
    "past_key_values",
    "past_key_value",
    "past_kv",
    "past",
    "layer_past",
    "cache_params",
    "kv_cache",
    "kv_caches",
    "caches",
    "cache",
)
"""Arguments that take what an earlier call returned."""
_POSITIONS = ("start_pos", "input_pos", "cur_pos", "pos", "offset")
"""Arguments that say where the tokens stand, of models that keep their cache themselves."""
_SETUPS = ("setup_caches", "setup_cache")


@dataclass(frozen=True)
class Phase:
    """What `--phase` asks for."""

    name: str
    """'prefill' or 'decode'."""
    tokens: int
    """Tokens of the prompt, or in the key-value cache."""


def phase_inputs(
    model: nn.Module, phase: Phase, batch: int | None, sites: SiteFinder, name: str
) -> CallInputs:
    """Inputs for the model's forward in a phase; a cache is one that the forward itself filled.

    Args:
        batch: sequences; None: 8.
        name: of the model, for messages.

    Raises:
        TargetError: the model has no such phase, or tclint cannot tell how to ask for it.
    """
    call = _Call(model, name, phase, batch or BATCH, sites)
    if phase.name == "prefill":
        given = call.with_position({**call.tokens(phase.tokens), **call.answering()}, 0, phase.tokens)
        return _inputs(given, f"a prompt of {phase.tokens} tokens")
    cached = min(phase.tokens, call.limit - 1) if call.limit is not None else phase.tokens
    what = f"one new token against a key-value cache of {cached} tokens"
    if call.cache is None:
        return _inputs(call.with_position(call.tokens(1), cached, 1), f"{what}, which the model keeps")
    made = call.filled_cache(cached)
    given = call.with_position({**call.tokens(1), **call.answering(), call.cache: made}, cached, 1)
    return _inputs(given, f"{what}, as its forward returns it")


def _inputs(given: dict[str, Any], what: str) -> CallInputs:
    shown = ", ".join(f"{name} = {described(value)}" for name, value in given.items())
    return CallInputs((), given, (Assumption(f"{what}: {shown}"),), "--phase")


class _Call:
    """How the forward of a causal language model is called."""

    def __init__(self, model: nn.Module, name: str, phase: Phase, batch: int, sites: SiteFinder) -> None:
        self._model, self._name, self._batch, self._sites = model, name, batch, sites
        self._parameters = parameters_of(model)
        self._token_name = self._find_tokens()
        if attribute(attribute(model, "config"), "is_encoder_decoder"):
            raise TargetError(
                f"{name} encodes one sequence and decodes another: --phase is for models of one."
            )
        self.cache = next((one for one in _CACHES if one in self._parameters), None)
        self._position = next((one for one in _POSITIONS if one in self._parameters), None)
        if phase.name == "decode" and self.cache is None and self._position is None:
            takes = ", ".join(self._parameters)
            raise TargetError(
                f"The forward of {name} takes no key-value cache (it takes {takes}), so it has no decode "
                "phase: every new token costs it a prefill."
            )
        self.limit = self._find_limit(phase)

    def _find_tokens(self) -> str:
        try:
            guess = infer_inputs(self._model)
        except InferenceFailed:
            guess = CallInputs((), {})
        given = {**dict(zip(required_arguments(self._model), guess.args, strict=False)), **guess.kwargs}
        for name, value in given.items():
            if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.dim() == 2:
                return name
        raise TargetError(
            f"{self._name} takes no tokens that tclint knows of: --phase is for language models."
        )

    def _find_limit(self, phase: Phase) -> int | None:
        owners = (self._model, *(attribute(self._model, one) for one in ("config", "params", "args")))
        limit = next((found for one in owners if (found := stated_length(one)) is not None), None)
        if limit is not None and phase.tokens > limit:
            option = "--prompt" if phase.name == "prefill" else "--kv-length"
            raise TargetError(
                f"{self._name} states a context of {limit} tokens, and {option} asks for {phase.tokens}: "
                f"give at most {limit}."
            )
        return limit

    def tokens(self, count: int) -> dict[str, Any]:
        """The tokens, and what the forward requires beside them."""
        tokens = torch.empty((self._batch, count), dtype=torch.int64, device=_META)
        given: dict[str, Any] = {self._token_name: tokens}
        for name in required_arguments(self._model):
            if name not in (self._token_name, self._position, self.cache):
                values = guesses_for(name, tokens, self._model)
                given |= {name: values[0]} if values else {}
        return given

    def answering(self) -> dict[str, Any]:
        """Only the last position is asked for, and what was computed is kept, where that can be said."""
        said = {"use_cache": True, "logits_to_keep": 1, "num_logits_to_keep": 1}
        return {name: value for name, value in said.items() if name in self._parameters}

    def with_position(self, given: dict[str, Any], first: int, count: int) -> dict[str, Any]:
        """With the place of the first token, and room for all in the cache that the model keeps."""
        name = self._position
        if name is None:
            return given
        if self.cache is None:
            self._set_up(first + count)
        is_number = "int" in str(self._parameters[name].annotation) or isinstance(
            self._parameters[name].default, int
        )
        return {**given, name: first if is_number else torch.arange(first, first + count)}

    def _set_up(self, length: int) -> None:
        setup = next(filter(callable, (getattr(self._model, one, None) for one in _SETUPS)), None)
        if setup is None:
            return
        given: dict[str, Any] = {}
        for parameter in inspect.signature(setup).parameters.values():
            if "batch" in parameter.name:
                given[parameter.name] = self._batch
            elif parameter.name == "dtype":
                given[parameter.name] = floating_dtype(self._model)
            elif "len" in parameter.name and "encoder" not in parameter.name.replace("decoder", ""):
                given[parameter.name] = length
        self._run(lambda: on_meta(lambda: setup(**given), self._sites), f"{setup.__name__}()")

    def filled_cache(self, count: int) -> Cache:
        """What the forward returns as the cache of so many tokens."""
        given = self.with_position({**self.tokens(count), **self.answering()}, 0, count)
        if self.cache in required_arguments(self._model):
            given[str(self.cache)] = None
        returned = self._run(lambda: record(self._model, (), given, self._sites).returned, "prefill")
        named = attribute(returned, str(self.cache))
        if _tensors(named):
            return Cache(named)
        for found in _parts(returned):
            if any(count in tensor.shape for tensor in _tensors(found)):
                return Cache(found)
        raise TargetError(
            f"The forward of {self._name} takes {self.cache}, but returns no cache for it: name a callable "
            "that returns the model with the inputs of a step, cache included, and leave --phase out."
        )

    def _run(self, function: Callable[[], Any], what: str) -> Any:
        try:
            return function()
        except Exception as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
            raise TargetError(f"The {what} of {self._name} that makes its cache failed: {reason}.") from error


def _parts(returned: Any) -> Iterable[Any]:
    """What of a forward's result may be its cache."""
    if isinstance(returned, Mapping):
        yield from (value for key, value in returned.items() if "past" in str(key) or "cache" in str(key))
    elif isinstance(returned, (tuple, list)):
        yield from returned[1:]


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    filled(value, lambda tensor, _place: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found
