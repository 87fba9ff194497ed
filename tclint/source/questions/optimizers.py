"""Optimizers: the modules that they update, and the number of parameters as far as it is known."""

from __future__ import annotations

import math
from functools import cached_property

from tclint.source.questions.defaults import Defaults
from tclint.source.questions.flow import Flow
from tclint.source.run.facts import Facts
from tclint.source.run.values import FALSE, Event, Thing, Value, constants_of, modules_in, options_of

_LEARNING_RATE = 1e-3
"""Adam's default in torch and in transformers."""
_TINY = 100_000
"""Up to this many parameters, launching the kernels of an update takes longer than running them."""
_UNCOUNTED = ("LSTM", "GRU", "RNN", "Transformer", "Bilinear", "Lazy", "PReLU", "EmbeddingBag", "AdaptiveLog")
"""Beginnings of the names of layers whose parameters are not counted here."""


class Optimizers:
    """Answers about the optimizers of one program."""

    def __init__(self, facts: Facts, flow: Flow) -> None:
        self.facts = facts
        self.flow = flow
        self.record = facts.record
        self._guess = 0

    @cached_property
    def all(self) -> list[tuple[Event, Thing]]:
        """The optimizers that the program makes and steps, with the events that make them, in order."""
        stepped = {
            thing
            for event in self.record.of("step", "scaler_step", "trains")
            for value in event.inputs
            for thing in self._with_parts(value)
        }
        return [
            (event, thing)
            for event in self.record.of("make")
            for thing in self.facts.kinds(event.result, "optimizer")
            if thing in stepped
        ]

    def _with_parts(self, value: Value) -> set[Value]:
        """A value, the values that it comes from, and the contents of unknown objects among them."""
        found: set[Value] = set(self.facts.held(value)) | set(self.facts.within(value))
        for thing in [item for item in found if isinstance(item, Thing) and item.is_unknown]:
            found.update(part for item in thing.fields.values() for part in self.facts.held(item))
        return found

    def updated_by(self, optimizer: Thing) -> frozenset[Thing]:
        """The modules, and other things, whose parameters an optimizer gets."""
        return self.facts.parameters_of(optimizer.fields.get("params"))

    def learning_rates(self, optimizer: Thing) -> tuple[float, ...]:
        """The learning rates that an optimizer starts with, one for each group of parameters, with options at
        their defaults; empty if one is unknown."""
        groups = [
            thing.fields[("item", "lr")]
            for thing in self.facts.held(optimizer.fields.get("params"))
            if thing.kind == "dict" and ("item", "lr") in thing.fields
        ]
        given = optimizer.fields.get("lr")
        if given is None and not groups and "**" in optimizer.fields:
            return ()
        rates = [Defaults().constant(item) for item in (groups or ([] if given is None else [given]))]
        known = tuple(float(rate) for rate in rates or [_LEARNING_RATE] if isinstance(rate, int | float))
        return known if len(known) == len(rates or known) else ()

    # -- sizes

    def is_tiny(self, optimizer: Thing) -> bool:
        """Whether an optimizer updates few parameters, as far as is known."""
        sizes = [self.size_of(module) for module in self.updated_by(optimizer)]
        return bool(sizes) and None not in sizes and sum(size or 0 for size in sizes) < _TINY

    def has_parameters(self, module: Thing) -> bool:
        """Whether a module is known to have parameters, rather than buffers alone."""
        return any(
            self._own_size(part) != 0 if self._is_of_library(part) else self._holds_parameter(part)
            for part in modules_in(module)
        )

    def _is_of_library(self, part: Thing) -> bool:
        # What an unknown function returns may be anything that is called with tensors.
        is_made = part.made is not None and part.made.kind == "make"
        return bool(self.flow.kind(part)) or (
            part.cls is None and is_made and "@weightless" not in part.fields
        )

    def _holds_parameter(self, part: Thing) -> bool:
        return any(
            thing.made is not None and thing.made.kind == "parameter"
            for value in part.fields.values()
            for thing in self.facts.things(value)
        )

    def size_of(self, module: Thing) -> int | None:
        """The number of parameters of a module; an unknown dim counts as the largest known one. None if too
        little is known."""
        if module.kind != "module":
            return None
        parts = list(modules_in(module))
        dims = [size for part in parts for name in _DIMS for size in self._numbers(part, name)]
        self._guess = max(dims, default=0)
        sizes = [self._own_size(part) for part in parts]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def _own_size(self, part: Thing) -> int | None:
        """The number of parameters of one module without those of the modules in it."""
        kind = self.flow.kind(part)
        if "@open" in part.fields or (not kind and part.cls is None):
            return None
        if not kind:
            return None if any(map(self._may_have_parameters, part.fields.values())) else 0
        if kind == "Linear":
            return self._product(part, "in_features", "out_features", bias="out_features")
        if kind.startswith("Conv"):
            dims = int(kind[-2])
            sides = self._numbers(part, "kernel_size")
            groups = self._product(part, "groups")
            size = self._product(part, "in_channels", "out_channels")
            if not sides or size is None or not groups:
                return None
            return size // groups * (sides[0] ** dims if len(sides) == 1 else math.prod(sides))
        if kind == "Embedding":
            return self._product(part, "num_embeddings", "embedding_dim")
        if kind == "MultiheadAttention":
            size = self._product(part, "embed_dim", "embed_dim")
            return None if size is None else 4 * size
        if kind.endswith("Norm") or kind[:-2].endswith("Norm"):
            if any(self.flow.argument(part, name) == FALSE for name in ("affine", "elementwise_affine")):
                return 0
            size = self._product(part, *(name for name in _OF_NORMS if name in part.fields))
            return None if size is None else 2 * size
        return None if kind.startswith(_UNCOUNTED) else 0

    def _may_have_parameters(self, value: Value) -> bool:
        return any(
            isinstance(option, Thing)
            and (option.kind == "tensor" or (option.is_unknown and option.made is not None))
            for option, _ in options_of(value)
        )

    def _product(self, part: Thing, *names: str, bias: str = "") -> int | None:
        sizes = [self._numbers(part, name) or self._guessed(name) for name in names]
        if not all(sizes):
            return None
        added = self._numbers(part, bias) if bias and self.flow.argument(part, "bias") != FALSE else ()
        return math.prod(number for size in sizes for number in size) + sum(added)

    def _guessed(self, name: str) -> tuple[int, ...]:
        return (self._guess,) if name in _DIMS and self._guess else ()

    def _numbers(self, part: Thing, name: str) -> tuple[int, ...]:
        """A size argument of a layer as a tuple: one number, or several such as `(3, 3)`."""
        value = self.flow.argument(part, name)
        held = (
            [item for key, item in value.fields.items() if isinstance(key, tuple)]
            if isinstance(value, Thing)
            else [value]
        )
        found = [constants_of(item) if item is not None else None for item in held]
        numbers = [item[0] for item in found if item and len(item) == 1 and isinstance(item[0], int)]
        return tuple(numbers) if len(numbers) == len(held) else ()


_DIMS = frozenset({"in_features", "out_features", "in_channels", "out_channels"})
_OF_NORMS = ("num_features", "normalized_shape", "num_channels")
