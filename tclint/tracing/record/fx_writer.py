"""Writes operator calls as nodes of a torch.fx.Graph, while they happen."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from tclint.graph.ops import Cast, Checkpoint
from tclint.tracing.meta_ops.meta_kernels import to_meta
from tclint.tracing.values.aliasing import storage_key
from tclint.tracing.values.constants import uniform_value
from tclint.tracing.values.operators import Args, Kwargs, OperatorFacts
from tclint.tracing.values.origin import ValueOrigin, origin_of, parameter_of
from tclint.tracing.values.sites import SitePair
from tclint.tracing.values.triangles import known_triangle

_CPU = torch.device("cpu")


class TensorName(NamedTuple):
    """`node.meta["tclint"]` of a source: which of the model's weights or inputs it is, if it is one."""

    parameter: str | None = None
    input_name: str | None = None
    is_derived: bool = False
    value: float | None = None
    memory: tuple[int, int] | None = None
    triangle: tuple[float, float] | None = None
    """All three as in TensorSpec."""


@dataclass(slots=True)
class FxCall:
    """`node.meta["tclint"]` of an operator call: what torch.fx has no name for."""

    facts: OperatorFacts
    read_as: Mapping[int, torch.Tensor]
    """Tensor arguments (by their place among those) that were not as the nodes that made them say: converted
    by autocast, or changed by `.data`."""
    parent: Node | None
    """The composite operator that the call is a part of."""
    names: tuple[TensorName, ...] = ()
    """Names of the results that are tensors; empty where there are none."""
    is_alias: bool = False
    """The first result shares the memory of an argument."""
    construct: SitePair | None = None
    """The line that constructed the innermost module."""
    line: SitePair | None = None
    """The line that called the operator."""
    differentiable: bool = True
    has_own_backward: bool = False
    checkpoint: Checkpoint | None = None
    autocast_disabled: bool = False
    casts: tuple[Cast, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What holds while the operator runs and decides how, beside its arguments, as Op.attributes has it."""


class Arguments(NamedTuple):
    """What an operator is given, with nodes for tensors."""

    args: Args
    kwargs: Kwargs
    read_as: dict[int, torch.Tensor]


class FxWriter:
    """The graph of one run: placeholders for inputs, get_attr nodes for weights, call_function for operators.

    Constants that the model made are get_attr nodes `_constant_1` ..., each its own.
    """

    def __init__(self) -> None:
        self.graph = FxGraph()
        self.calls = 0
        self._inputs: dict[str, Node] = {}
        self._weights: dict[tuple[TensorName, tuple[int, ...]], Node] = {}
        self._results: dict[tuple[Node, int], Node] = {}
        self._taken_back: set[Node] = set()
        self._constants = 0
        self._memories: dict[int, tuple[int, Any]] = {}
        """By address: the number of a constant's memory, and what keeps it from being given out twice."""

    def declare_input(self, name: str, tensor: torch.Tensor) -> None:
        """A tensor that the model is called with; all of them come before the first call."""
        node = self.graph.placeholder(re.sub(r"\W+", "_", name).strip("_") or "input")
        node.target = node.name  # which fx made unique, and a name that Python allows
        node.meta = {"val": to_meta(tensor), "tclint": TensorName(input_name=name)}
        self._inputs[name] = node

    def arguments(self, facts: OperatorFacts, args: Args, kwargs: Mapping[str, Any]) -> Arguments:
        """What an operator call is given, as it is now. Where the results are placed is left out."""
        read_as: dict[int, torch.Tensor] = {}
        tensors = 0

        def read(value: Any) -> Any:
            nonlocal tensors
            if isinstance(value, torch.Tensor):
                node = self.node_of(value)
                if _differ(value, node.meta["val"]):
                    read_as[tensors] = to_meta(value)
                tensors += 1
                return node
            if isinstance(value, (list, tuple)):
                return [read(item) for item in value]
            return _CPU if isinstance(value, torch.device) else value

        given = tuple([read(value) for value in args])
        named: dict[str, Any] = {}
        if kwargs:
            for name, is_placement in facts.arguments:  # in their order, by which `read_as` counts
                if name in kwargs and not is_placement:
                    named[name] = read(kwargs[name])
        return Arguments(given, named, read_as)

    def call(self, facts: OperatorFacts, given: Arguments, parent: Node | None) -> Node:
        """The node of an operator call that starts."""
        self.calls += 1
        # With arguments, create_node() looks through them for what is never there.
        node = self.graph.create_node("call_function", facts.function, name=facts.full_name)
        node.args = given.args
        if given.kwargs:
            node.kwargs = given.kwargs
        node.meta["tclint"] = FxCall(facts, given.read_as, parent)
        return node

    def take_back(self, call: Node) -> None:
        """Forget a call, which failed, and all that was written since."""
        for node in reversed(self.graph.nodes):
            self.graph.erase_node(node)
            self._taken_back.add(node)
            if node is call:
                break
        self._weights = {key: node for key, node in self._weights.items() if node not in self._taken_back}
        self._results = {key: node for key, node in self._results.items() if node not in self._taken_back}

    def finish(self, returned: Iterable[torch.Tensor]) -> None:
        """The run has ended with these tensors."""
        self.graph.output(tuple(self.node_of(tensor) for tensor in returned))

    def node_of(self, tensor: torch.Tensor) -> Node:
        """The node whose value the tensor is."""
        origin = origin_of(tensor)
        maker = None if origin is None else origin.maker
        if origin is None or maker is None or maker.graph is not self.graph or maker in self._taken_back:
            return self._source(tensor)
        return maker if origin.place is None else self._result(maker, origin.place)

    def _result(self, call: Node, place: int) -> Node:
        node = self._results.get((call, place))
        if node is None:
            node = self.graph.create_node("call_function", operator.getitem, name="item")
            node.args = (call, place)
            node.meta["val"] = call.meta["val"][place]
            self._results[call, place] = node
        return node

    def _source(self, tensor: torch.Tensor) -> Node:
        origin, parameter = origin_of(tensor), parameter_of(tensor)
        if origin is not None and origin.input_name in self._inputs:
            return self._inputs[origin.input_name]
        is_derived = origin is not None and origin.is_derived
        # A weight has the values of its checkpoint.
        value = None if parameter is not None else _value(tensor, origin)
        memory = self.memory_of(tensor, origin)
        triangle = None if isinstance(tensor, torch.nn.Parameter) else known_triangle(tensor)
        name = TensorName(parameter, None, is_derived, value, memory, triangle)
        key = name, tuple(tensor.shape)
        node = self._weights.get(key)
        if node is None:
            is_weight = parameter is not None and not name.is_derived
            if not is_weight:
                self._constants += 1
            # Not get_attr(), which would look for the attribute on a module that the graph does not have.
            target = parameter if parameter is not None and is_weight else f"_constant_{self._constants}"
            node = self.graph.create_node("get_attr", target)
            node.meta = {"val": to_meta(tensor), "tclint": name}
            if is_weight:
                self._weights[key] = node
        return node

    def memory_of(self, tensor: torch.Tensor, origin: ValueOrigin | None) -> tuple[int, int] | None:
        """Number and bytes of a constant's memory; None where it has none of its own that is known."""
        if tensor.is_meta:
            return None if origin is None or origin.maker is not None else origin.memory
        key = storage_key(tensor)
        is_own = parameter_of(tensor) is None or (origin is not None and origin.is_copy)
        if key is None or not is_own:
            return None
        storage = tensor.untyped_storage()
        number, _ = self._memories.setdefault(key, (len(self._memories), storage))
        return number, storage.nbytes()


def without_composites(graph: FxGraph) -> FxGraph:
    """The graph without calls that were written down together with the parts that did their work."""
    calls = [node.meta.get("tclint") for node in graph.nodes]
    composite = {call.parent for call in calls if isinstance(call, FxCall)}
    for node in reversed(graph.nodes):
        if node in composite and not node.users:
            graph.erase_node(node)
    return graph


def _value(tensor: torch.Tensor, origin: ValueOrigin | None) -> float | None:
    if not tensor.is_meta:
        return uniform_value(tensor)
    return None if origin is None or origin.maker is not None else origin.value


def _differ(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        return True
    if tensor.layout != torch.strided or value.layout != torch.strided:
        return False
    return bool(tensor.stride() != value.stride())
