"""Models that a program turns into another dtype as a whole: `.half()`, `.to(torch.bfloat16)`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from tclint.source.names.queries import keyword, words
from tclint.source.names.resolve import Resolver, Symbol, dtype_of
from tclint.source.syntax.tables import (
    Call,
    Expression,
    Function,
    Name,
    Other,
    Return,
    Tables,
    dotted,
    method_of,
    parts_of,
)

_METHODS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}
_OF_MODULES = words(
    "parameters named_parameters train eval state_dict load_state_dict named_modules modules zero_grad"
)

_ADAPTERS = words("peft lora adapter requires_grad freeze load_in_ quantiz bitsandbytes 8bit")
"""Identifiers of programs that train other parameters than those of the loaded checkpoint."""


class ModelCast(NamedTuple):
    """All parameters of a model change their dtype."""

    name: str
    """Dotted, as the function names it."""
    dtype: str
    function: int
    block: int
    node_id: int
    """Where it happens in that function."""
    inside: int = -1
    """Where a function that it calls writes the cast, for one that makes the model."""

    @property
    def written(self) -> int:
        """The node id of the cast itself."""
        return self.inside if self.inside >= 0 else self.node_id


class Casts:
    """Answers about one file."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.tables: Tables = resolver.tables

    @cached_property
    def models(self) -> frozenset[str]:
        """Names on which methods of nn.Module are called."""
        found = set()
        for _, event in self.tables.calls:
            receiver, method = method_of(event.call)
            if method in _OF_MODULES and receiver is not None and dotted(receiver):
                found.add(dotted(receiver))
        return frozenset(name for name in found if "opt" not in name.lower() and "sched" not in name.lower())

    def dtype_of(self, function: Function, call: Call) -> str | None:
        """The dtype that a call such as `x.half()` or `x.to(device, torch.float16)` gives; None: no other."""
        receiver, method = method_of(call)
        if receiver is None:
            return None
        if method in _METHODS and not call.arguments:
            return _METHODS[method]
        if method == "to":
            for argument in call.arguments:
                if argument.keyword not in ("", "dtype") or argument.star:
                    continue
                made = self.resolver.evaluate(function, argument.value).only
                if isinstance(made, Symbol):
                    return dtype_of(made)
        return None

    def chain(self, function: Function, expression: Expression) -> tuple[str, str | None]:
        """Name at the root of a chain of method calls ('' when it is none), and the dtype that it ends in."""
        dtype = None
        while isinstance(expression, Call):
            if dtype is None:
                dtype = self.dtype_of(function, expression)
            receiver, _ = method_of(expression)
            if receiver is None:
                return "", dtype
            if isinstance(receiver, Name) and dtype is None and isinstance(expression.function, Name):
                return receiver.dotted, None
            expression = receiver
        return dotted(expression), dtype

    @cached_property
    def model_casts(self) -> tuple[ModelCast, ...]:
        """Every cast of a whole model in order, those to float32 as well."""
        found = []
        for function in self.tables.functions:
            inner = set(_receivers(function))
            assigned: set[int] = set()
            for event in function.assignments:
                if isinstance(event.value, Call) and not event.operator:
                    root, dtype = self.chain(function, event.value)
                    if dtype is None or event.unpacked:
                        continue
                    assigned.add(event.value.node_id)
                    for name in dict.fromkeys((*event.targets, root)):
                        if name in self.models:
                            cast = ModelCast(name, dtype, function.index, event.block, event.value.node_id)
                            found.append(cast)
                            break
            for call, block in function.calls:
                if call.node_id not in inner | assigned:
                    root, dtype = self.chain(function, call)
                    if root in self.models and dtype is not None:
                        found.append(ModelCast(root, dtype, function.index, block, call.node_id))
        return tuple(sorted(found, key=lambda cast: cast.node_id))

    @cached_property
    def returned(self) -> tuple[ModelCast, ...]:
        """Models that a function of the file casts and returns, where another one takes them."""
        found = []
        for cast in self.model_casts:
            owner = self.tables.functions[cast.function]
            last = next((event.value for event in reversed(owner.events) if isinstance(event, Return)), None)
            if owner.kind != "function" or last is None or dotted(last) != cast.name:
                continue
            if any(
                later.name == cast.name and later.node_id > cast.node_id and later.function == cast.function
                for later in self.model_casts
            ):
                continue
            for function, event in self.tables.assignments:
                if event.unpacked or event.operator:
                    continue
                made = event.value
                if not isinstance(made, Call) or len(event.targets) != 1:
                    continue
                if owner in self.resolver.local_functions(function, made.function):
                    name = event.targets[0]
                    found.append(
                        ModelCast(name, cast.dtype, function.index, event.block, made.node_id, cast.node_id)
                    )
        return tuple(found)

    @cached_property
    def loaded_in_half(self) -> tuple[ModelCast, ...]:
        """Models whose checkpoint is loaded in float16: `X.from_pretrained(name, torch_dtype=torch.float16)`.

        Not those whose trained parameters may be others: adapters, quantized or partly frozen models.
        """
        if any(word in name.lower() for name in self.tables.identifiers for word in _ADAPTERS):
            return ()
        found = []
        for function in self.tables.functions:
            bound = [target for event in function.assignments for target in event.targets]
            for event in function.assignments:
                if event.unpacked or len(event.targets) != 1:
                    continue
                name = event.targets[0]
                load = _load(event.value)
                if load is None or name not in self.models or bound.count(name) > 1:
                    continue
                if self.chain(function, event.value)[1] is None and self._asks_half(function, load):
                    found.append(ModelCast(name, "float16", function.index, event.block, load.node_id))
        return tuple(sorted(found, key=lambda cast: cast.node_id))

    def _asks_half(self, function: Function, load: Call) -> bool:
        given = keyword(load, "torch_dtype") or keyword(load, "dtype")
        return given is not None and dtype_of(self.resolver.evaluate(function, given).only) == "float16"

    @cached_property
    def trained(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Models whose parameters the file gives to optimizers -> (function, node id) of each."""
        found: dict[str, tuple[tuple[int, int], ...]] = {}
        for function, event in self.tables.calls:
            called = self.resolver.called(function, event.call)
            if not any(_is_optimizer(name) for name in called):
                continue
            for argument in event.call.arguments:
                for name in self._parameters_in(function, argument.value, 3):
                    found[name] = (*found.get(name, ()), (function.index, event.call.node_id))
        return found

    def _parameters_in(self, function: Function, expression: Expression, depth: int) -> Iterator[str]:
        """Names of the models whose `.parameters()` an expression reads."""
        if depth <= 0:
            return
        if isinstance(expression, Call):
            receiver, method = method_of(expression)
            if method in ("parameters", "named_parameters") and receiver is not None and dotted(receiver):
                yield dotted(receiver)
            elif "param" in method and expression.arguments and dotted(expression.arguments[0].value):
                yield dotted(expression.arguments[0].value)  # `trainable_params(model)`
        if isinstance(expression, Name):
            definitions, _ = self.resolver.definitions(function, expression.dotted)
            for scope, item in definitions:
                if not (isinstance(item.value, Other) and item.value.kind == "iterate"):
                    yield from self._parameters_in(scope, item.value, depth - 1)
        for part in parts_of(expression):
            yield from self._parameters_in(function, part, depth)


def _is_optimizer(qualified: str) -> bool:
    """A class of optimizers that update parameters as they are, in the dtype that these have."""
    package, _, last = qualified.rpartition(".")
    plain = package in ("transformers", "transformers.optimization") and last in ("AdamW", "Adafactor")
    known = package.startswith(("torch.optim", "torch_optimizer")) and "lr_scheduler" not in package
    return plain or (known and last[:1].isupper())


def _receivers(function: Function) -> Iterator[int]:
    """Sites of calls on whose result a method is called."""
    for event in function.calls:
        receiver, _ = method_of(event.call)
        if isinstance(receiver, Call):
            yield receiver.node_id


def _load(expression: Expression) -> Call | None:
    """The call of `from_pretrained` that a chain of method calls starts with."""
    while isinstance(expression, Call):
        receiver, method = method_of(expression)
        if method == "from_pretrained":
            return None if any(argument.star for argument in expression.arguments) else expression
        if receiver is None:
            return None
        expression = receiver
    return None
