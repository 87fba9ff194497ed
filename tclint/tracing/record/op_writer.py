"""Reads what the operators of one run were given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tclint.graph.ops import Op, TensorSpec
from tclint.tracing.values.operators import Argument, OperatorFacts, json_value
from tclint.tracing.values.origin import spec_of

_JSON_SCALARS = frozenset({bool, int, float, str, type(None)})


@dataclass(slots=True)
class Call:
    """An operator call that is being written: what its arguments tell an Op."""

    index: int
    inputs: tuple[TensorSpec, ...]
    input_names: tuple[str, ...]
    attributes: Mapping[str, Any]


class OpWriter:
    """Numbers operator calls in the order in which they start."""

    def __init__(self) -> None:
        self.ops: list[Op | None] = []
        """None in the place of one that still runs."""

    def finished(self) -> tuple[Op, ...]:
        """All operators of the run, which has ended."""
        return tuple(op for op in self.ops if op is not None)

    def take_back(self, index: int) -> None:
        """Forget the operator of that index, which failed, and all that started since."""
        del self.ops[index:]

    def write(
        self,
        facts: OperatorFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        before: Mapping[int, TensorSpec] | None = None,
    ) -> Call:
        """Number an operator call and read its arguments; its Op has to be put in its place when it ends.

        Args:
            before: by id, tensor arguments as they were before an operator that changed their shapes.
        """
        index = len(self.ops)
        self.ops.append(None)
        names: list[str] = []
        specs: list[TensorSpec] = []
        attributes = facts.defaults.copy()
        given: Iterable[tuple[Argument, Any]] = zip(facts.arguments, args, strict=False)
        if kwargs:
            named = [argument for argument in facts.arguments[len(args) :] if argument.name in kwargs]
            given = [*given, *((argument, kwargs[argument.name]) for argument in named)]
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
        return Call(index, tuple(specs), tuple(names), attributes)
