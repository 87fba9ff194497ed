"""Watches the operators of a run: numbers that the model's code gives them, and what they compute."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, TypeGuard

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tclint.graph.ops import Site
from tclint.graph.weights.plan import AxisPlan, WeightEdit, WeightPlan
from tclint.tracing.equality.weights import old_entries
from tclint.tracing.values.operators import Args, Kwargs
from tclint.tracing.values.sites import SiteFinder

_DOUBLES = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
_NUMBERS = ("number", "float", "Optional[number]", "Optional[float]", "Tensor", "Optional[Tensor]")
"""Types of a schema whose arguments may be numbers to compute with; sizes and dims are of type int."""
_PLACES = frozenset({"arange"})
"""Operators whose numbers are places along an axis; their results show what they come to."""
_MADE_OF_PYTHON = "lift_fresh"
"""What `torch.tensor(0.5)` calls."""
_MOST_WAYS = 8
"""In which old entries of one result are looked for."""

_PLAIN = torch.Tensor.__torch_dispatch__


@dataclass(frozen=True, slots=True)
class WatchedCall:
    """An operator that computes with numbers."""

    name: str
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """An operator's result, by what does not depend on the order of its entries."""

    name: str
    shape: tuple[int, ...]
    sums: tuple[float, float]
    """The sum of the entries, and the sum of their squares."""


@dataclass
class Record:
    """What a run did, in order."""

    calls: list[WatchedCall] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the results of two runs differ first."""

    op: str
    site: Site | None
    module: str
    how: str = "gives other values"


class Watch(TorchDispatchMode):
    """Runs a model in float64, whatever its code asks for, and writes down what its operators get and make.

    Args:
        sites: tells user code from library code.
        before: of the original's run, if the run is the padded model's.
        keeps_numbers: the numbers of that run are used instead of the padded model's own.
        plan: says which entries of results are old ones; without it, results are not compared.
        modules: the modules that run, outermost first.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        sites: SiteFinder,
        before: Record | None = None,
        *,
        keeps_numbers: bool = False,
        plan: WeightPlan | None = None,
        modules: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.record = Record()
        self.edits: dict[WeightEdit, None] = {}
        """One for each line that computes with other numbers than the original's."""
        self.other_call: Difference | None = None
        """The first operator with numbers that the original's run has not."""
        self.difference: Difference | None = None
        """The first operator whose old entries differ."""
        self.other_way: Difference | None = None
        """The first operator that is another one than in the original's run."""
        self._sites, self._before, self._keeps = sites, before, keeps_numbers
        self._modules = modules
        self._known: dict[tuple[int, int], list[AxisPlan]] = {}
        self._compares = before is not None and plan is not None
        for tensor in plan or ():
            for axis in tensor.axes:
                sizes = tensor.old_shape[axis.axis], tensor.new_shape[axis.axis]
                ways = self._known.setdefault(sizes, [])
                if all(axis.segments != other.segments for other in ways):
                    ways.append(axis)

    def __torch_dispatch__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        if any(kind.__torch_dispatch__ != _PLAIN for kind in types or ()):
            return NotImplemented  # a subclass runs the operator on the tensors that it is made of
        args = tuple(map(_doubled, args))
        kwargs = {name: _doubled(value) for name, value in (kwargs or {}).items()}
        schema = getattr(func, "_schema", None)
        if schema is None:
            return func(*args, **kwargs)
        name = schema.name.partition("::")[2]
        if name not in _PLACES:
            args, kwargs = self._numbers(schema, name, args, kwargs)
        made = func(*args, **kwargs)
        if not any(item.alias_info is not None for item in schema.returns):
            for tensor in made if isinstance(made, (tuple, list)) else (made,):
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                    self._result(name, tensor)
        return made

    # -- numbers

    def _numbers(self, schema: Any, name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        given: list[tuple[int | str, float]] = []
        for place, argument in enumerate(schema.arguments):
            key: int | str = place if place < len(args) else argument.name
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            if value is None and argument.name == "scale" and "attention" in name:
                value = args[0].shape[-1] ** -0.5  # the default
            if name == _MADE_OF_PYTHON:
                value = _lone_number(value)
            if _is_number(value) and str(argument.type) in _NUMBERS:
                given.append((key, value))
        if not given:
            return args, kwargs
        call = WatchedCall(name, tuple(value for _, value in given))
        position = len(self.record.calls)
        self.record.calls.append(call)
        if self._before is None or self.other_call is not None:
            return args, kwargs
        known = self._before.calls[position] if position < len(self._before.calls) else None
        if known is None or known.name != name or len(known.numbers) != len(given):
            self.other_call = self._here(name, _instead_of(known))
            return args, kwargs
        positional = list(args)
        for (key, value), old in zip(given, known.numbers, strict=True):
            if value == old or (math.isnan(value) and math.isnan(old)):
                continue
            site = self._here(name).site
            kind: Any = "attention_scale" if key == "scale" and "attention" in name else "constant"
            made_here = name == _MADE_OF_PYTHON
            edit = WeightEdit(kind, "tensor" if made_here else name.strip("_"), value=float(old))
            if site is not None:
                edit = replace(edit, path=site.path, line=site.line)
            self.edits[edit] = None
            if self._keeps and isinstance(key, int):
                positional[key] = torch.full_like(args[key], old) if made_here else old
            elif self._keeps:
                kwargs[str(key)] = old
        return tuple(positional), kwargs

    # -- results

    def _result(self, name: str, tensor: torch.Tensor) -> None:
        if self._before is None:
            self.record.results.append(Result(name, tuple(tensor.shape), _sums(tensor)))
            return
        position = len(self.record.results)
        self.record.results.append(Result(name, tuple(tensor.shape), (0.0, 0.0)))
        if not self._compares:
            return
        known = self._before.results[position] if position < len(self._before.results) else None
        if known is None or known.name != name or len(known.shape) != tensor.dim():
            self._compares = False  # it went another way, or results are cut
            self.other_way = self._here(name, _instead_of(known))
        elif not any(_are_close(known.sums, _sums(old)) for old in self._old_parts(tensor, known.shape)):
            self.difference = self._here(name)
            self._compares = False

    def _old_parts(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> Iterator[torch.Tensor]:
        """What may be the entries of a result that the original has too."""
        ways: list[list[tuple[int, AxisPlan]]] = []
        for number, sizes in enumerate(zip(shape, tensor.shape, strict=True)):
            old, new = sizes
            if old < new:
                first = AxisPlan(number, ((0, 0, old),))
                ways.append([(number, axis) for axis in (*self._known.get(sizes, ()), first)])
            elif old > new:
                return
        for count, chosen in enumerate(product(*ways)):
            if count == _MOST_WAYS:
                return
            yield old_entries(tensor, dict(chosen))

    def _here(self, name: str, how: str = "gives other values") -> Difference:
        site = self._sites.find(sys._getframe(1)).site
        module = self._modules[-1] if self._modules else ""
        return Difference(name.strip("_"), site, module, how)


def _instead_of(known: WatchedCall | Result | None) -> str:
    return "runs at the new sizes only" if known is None else f"runs in the place of {known.name.strip('_')}"


def _doubled(value: Any) -> Any:
    return _DOUBLES.get(value, value) if isinstance(value, torch.dtype) else value


def _lone_number(tensor: Any) -> float | None:
    """The value of a tensor that holds nothing else."""
    if not isinstance(tensor, torch.Tensor) or tensor.numel() != 1 or tensor.dtype == torch.bool:
        return None
    return None if tensor.is_complex() else float(tensor)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sums(tensor: torch.Tensor) -> tuple[float, float]:
    tensor = tensor.detach().double()
    return float(tensor.sum()), float(tensor.square().sum())


def _are_close(one: Sequence[float], other: Sequence[float]) -> bool:
    """To 1e-9 of the entries' norm; of what is not finite, nothing is known."""
    if not all(map(math.isfinite, (*one, *other))):
        return True
    scale = max(one[1], 1e-300)
    return abs(one[1] - other[1]) <= 1e-9 * scale and abs(one[0] - other[0]) <= 1e-9 * scale**0.5
