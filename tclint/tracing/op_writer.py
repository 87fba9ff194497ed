"""Collects the operators of one run as Ops, and marks the tensors that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tclint.graph import Op, TensorSpec
from tclint.tracing.operators import OperatorFacts, json_value
from tclint.tracing.origin import spec_of

_JSON_SCALARS = frozenset({bool, int, float, str, type(None)})


@dataclass(slots=True)
class Call:
    """An operator call that is being written: what its arguments tell an Op."""

    index: int
    inputs: tuple[TensorSpec, ...]
    input_names: tuple[str, ...]
    attributes: dict[str, Any]


class OpWriter:
    """Numbers operator calls in the order in which they start."""

    def __init__(self) -> None:
        self.written: list[Op | None] = []
        """By index; None for a call whose parts are still running."""
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    @property
    def count(self) -> int:
        """Operators written so far."""
        return len(self.written)

    @property
    def ops(self) -> tuple[Op, ...]:
        """The written operators in order."""
        return tuple(op for op in self.written if op is not None)

    def write(
        self,
        facts: OperatorFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        before: Mapping[int, TensorSpec] | None = None,
    ) -> Call:
        """Number an operator call and read its arguments; `complete` has to follow.

        Args:
            before: by id, tensor arguments as they were before an operator that changed their shapes.
        """
        index = len(self.written)
        self.written.append(None)
        names: list[str] = []
        specs: list[TensorSpec] = []
        attributes = facts.defaults.copy()
        given = zip(facts.arguments, args, strict=False)
        if kwargs:
            named = [argument for argument in facts.arguments[len(args) :] if argument.name in kwargs]
            given = [*given, *((argument, kwargs[argument.name]) for argument in named)]  # type: ignore[assignment]
        for (name, is_placement), value in given:
            if isinstance(value, torch.Tensor):
                names.append(name)
                specs.append(spec_of(value) if before is None else before[id(value)])
                attributes.pop(name, None)
            elif isinstance(value, (list, tuple)):
                first = len(names)
                for place, item in enumerate(value):
                    if isinstance(item, torch.Tensor):
                        names.append(f"{name}[{place}]")
                        specs.append(spec_of(item) if before is None else before[id(item)])
                if len(names) > first:
                    attributes.pop(name, None)
                elif not is_placement:
                    attributes[name] = [json_value(item) for item in value]
            elif not is_placement:
                attributes[name] = value if type(value) in _JSON_SCALARS else json_value(value)
        input_names = tuple(names)
        return Call(index, tuple(specs), self._names.setdefault(input_names, input_names), attributes)

    def complete(self, call: Call, op: Op) -> None:
        """Say what a written call is."""
        self.written[call.index] = op
