"""Inputs for a model: given by the caller, or provided by the target's file."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import torch

from tclint.core.errors import TargetError
from tclint.graph.ops import Assumption
from tclint.tracing.inputs.forward import parameters_of
from tclint.tracing.inputs.specs import InputSpec
from tclint.tracing.values.cache import Cache

_META = torch.device("meta")
ADVICE = "; --input sets another"
"""Behind what was assumed about inputs."""


class InferenceFailed(ValueError):
    """The model's first layers do not tell what it takes."""


@dataclasses.dataclass(frozen=True)
class CallInputs:
    """Arguments of the model's forward."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    assumptions: tuple[Assumption, ...] = ()
    source: str = ""
    """Where they come from: '--input', 'the target', 'example_inputs()', 'inferred'."""
    basis: Literal["stated", "guess", "repair"] = "guess"
    """What inferred inputs rest on: the model, its configuration or its project states them; nothing does; or
    the forward failed on others before."""
    is_shown: bool = False
    """Whether they are those of an example beside the model, which need not be what it trains on."""
    is_partly_made_up: bool = False
    """Whether arguments beside those whose sizes are stated were made up by their names or their use."""
    alternatives: tuple[CallInputs, ...] = ()
    """Other guesses, to be tried in turn where the forward fails on these inputs."""

    def with_assumptions(self, first: tuple[Assumption, ...]) -> CallInputs:
        """The same inputs, of which more was assumed."""
        return dataclasses.replace(
            self,
            assumptions=(*first, *self.assumptions),
            alternatives=tuple(other.with_assumptions(first) for other in self.alternatives),
        )

    def with_more(self, more: Mapping[str, Any], why: str) -> CallInputs:
        """The same inputs and further arguments, said in what was assumed last."""
        noted = self.with_note(f"{listed(more)}, {why}")
        return dataclasses.replace(noted, kwargs={**self.kwargs, **more})

    def with_note(self, note: str) -> CallInputs:
        """The same inputs, with more said in what was assumed last."""
        *others, last = self.assumptions
        what = f"{last.what.removesuffix(ADVICE)}; {note}{ADVICE}"
        return dataclasses.replace(self, assumptions=(*others, dataclasses.replace(last, what=what)))

    def describe(self) -> str:
        """'x=float32[8,3,224,224]' for every tensor, nested ones by their place."""
        named = [(f"input {index}", value) for index, value in enumerate(self.args)]
        named += list(self.kwargs.items())
        return ", ".join(f"{name}={described(value)}" for name, value in named)


def inferred(args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> CallInputs:
    """Inputs that nobody gave, with what is said of them."""
    return CallInputs(args, dict(kwargs), (Assumption(f"{what}{ADVICE}"),), "inferred")


def listed(values: Mapping[str, Any]) -> str:
    """'x = float32[8,3,224,224], y = int64[8]'."""
    return ", ".join(f"{name} = {described(value)}" for name, value in values.items())


def given_inputs(value: Any, source: str) -> CallInputs:
    """Inputs as user code states them: a tensor, a tuple or list of arguments, a dict of keywords."""
    if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
        return CallInputs((), dict(value), source=source)
    if type(value) is tuple or type(value) is list:
        return CallInputs(tuple(value), {}, source=source)
    return CallInputs((value,), {}, source=source)


def _on_meta(spec: InputSpec) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=_META)


def inputs_from_specs(
    specs: Sequence[InputSpec], make: Callable[[InputSpec], torch.Tensor] = _on_meta
) -> CallInputs:
    """Tensors as the `--input` options describe them; on meta, if not made otherwise."""
    args = tuple(make(spec) for spec in specs if spec.name is None)
    parts: dict[int | str, Any] = {}
    for spec in specs:
        if spec.name is not None:
            *owners, last = spec.path
            level = parts
            for step in owners:
                level = level.setdefault(step, _Parts())
            level[last] = make(spec) if spec.value is ... else spec.value
    return CallInputs(
        args, {str(name): _joined(value, str(name)) for name, value in parts.items()}, source="--input"
    )


def by_keyword(inputs: CallInputs, model: torch.nn.Module) -> CallInputs:
    """The same inputs, as the forward takes them: some by keyword only."""
    parameters = list(parameters_of(model).values())
    if any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters):
        return inputs
    by_name = [parameter.name for parameter in parameters if parameter.kind == parameter.KEYWORD_ONLY]
    count = sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )
    free = [name for name in by_name if name not in inputs.kwargs]
    if len(inputs.args) > count + len(free) or not free:
        return inputs
    named = dict(zip(free, inputs.args[count:], strict=False))
    return dataclasses.replace(inputs, args=inputs.args[:count], kwargs={**named, **inputs.kwargs})


class _Parts(dict[int | str, Any]):
    """What is given of one container, by index, key or '.attribute'."""


def _joined(value: Any, name: str) -> Any:
    """The list, dict or object with these parts.

    Raises:
        TargetError: they are of several kinds, or an index is left out.
    """
    if not isinstance(value, _Parts):
        return value
    made = {step: _joined(part, f"{name}[{step!r}]") for step, part in value.items()}
    if all(isinstance(step, int) for step in made):
        if set(made) != set(range(len(made))):
            raise TargetError(f"The parts of the input {name} are numbered from 0 on, and none is left out.")
        return [made[index] for index in range(len(made))]
    words = [step for step in made if isinstance(step, str)]
    attributes = [word for word in words if word.startswith(".")]
    if len(words) != len(made) or len(attributes) not in (0, len(words)):
        raise TargetError(
            f"The parts of the input {name} are indices, keys or attributes, not several of these."
        )
    if attributes:
        return SimpleNamespace(**{str(word).removeprefix("."): part for word, part in made.items()})
    return dict(made)


def inputs_of_module(module: ModuleType) -> tuple[str, Callable[[], Any]] | None:
    """The name and the maker of the inputs that a file provides; None where it provides none.

    `example_inputs()` or `EXAMPLE_INPUTS` hold one set, `example_input_sets()` or `EXAMPLE_INPUT_SETS` a
    dict of several by name.
    """
    for name in ("example_input_sets", "EXAMPLE_INPUT_SETS", "example_inputs", "EXAMPLE_INPUTS"):
        provided = vars(module).get(name)
        if provided is None:
            continue
        if name.islower():
            if callable(provided):
                return name, provided
            continue
        return name, functools.partial(_same, provided)
    return None


def inputs_of_graph(model: torch.nn.Module) -> tuple[torch.Tensor, ...] | None:
    """Tensors like those that an exported program or a torch.fx graph was recorded with, if it keeps them."""
    graph = getattr(model, "graph", None)
    if not isinstance(graph, torch.fx.Graph):
        return None
    values = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder"]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors or len(tensors) != len(values):
        return None
    return tuple(
        torch.empty(tuple(int(size) for size in value.shape), dtype=value.dtype, device=_META)
        for value in tensors
    )


def _same(value: Any) -> Any:
    return value


def input_sets(value: Any, source: str) -> dict[str, CallInputs]:
    """The sets of inputs by name that user code states under the name `source`.

    Raises:
        TypeError: several sets are no dict with names.
    """
    if not source.lower().endswith("_sets"):
        return {"": given_inputs(value, source)}
    if not isinstance(value, Mapping) or not value:
        raise TypeError("several sets of inputs are a dict from their names to inputs")
    return {str(name): given_inputs(inputs, source) for name, inputs in value.items()}


def with_batch(inputs: CallInputs, batch: int) -> CallInputs:
    """The same inputs with the leading dim of every tensor resized."""

    def resize(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _with_leading(value, batch)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(resize(item) for item in value))
        if type(value) in (list, tuple):
            return type(value)(resize(item) for item in value)
        if type(value) is dict:
            return {key: resize(item) for key, item in value.items()}
        if isinstance(value, SimpleNamespace):
            return SimpleNamespace(**{key: resize(item) for key, item in vars(value).items()})
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(
                value, **{name: resize(item) for name, item in _fields(value) if name in _settable(value)}
            )
        return value

    return dataclasses.replace(
        inputs,
        args=tuple(resize(value) for value in inputs.args),
        kwargs={name: resize(value) for name, value in inputs.kwargs.items()},
        alternatives=tuple(with_batch(other, batch) for other in inputs.alternatives),
    )


def _with_leading(tensor: torch.Tensor, batch: int) -> torch.Tensor:
    """A meta tensor like `tensor`, its dims lying in memory in the same order, its first one resized."""
    if tensor.dim() == 0 or tensor.shape[0] == batch or tensor.layout != torch.strided:
        return tensor
    shape = (batch, *tensor.shape[1:])
    # The order of the strides is the memory format; sizes are laid out anew in that order.
    order = sorted(range(tensor.dim()), key=lambda axis: (tensor.stride()[axis], -axis))
    strides, step = [0] * tensor.dim(), 1
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=_META)


def described(value: Any) -> str:
    """'float32[8,3,224,224]' for a tensor, the same within brackets for containers of tensors."""
    if isinstance(value, (str, bool, int, float)):
        return repr(value)
    if isinstance(value, torch.Tensor):
        sizes = ",".join(str(size) for size in value.shape)
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
    if isinstance(value, Cache):
        return type(value.content).__name__
    if isinstance(value, (list, tuple)):
        return f"({', '.join(described(item) for item in value)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}={described(item)}' for key, item in value.items())}}}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        listed = ", ".join(f"{name}={described(item)}" for name, item in _fields(value))
        return f"{type(value).__name__}({listed})"
    if isinstance(value, SimpleNamespace):
        return f"({', '.join(f'{name}={described(item)}' for name, item in vars(value).items())})"
    return type(value).__name__


def _fields(value: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]


def _settable(value: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(value) if field.init}
