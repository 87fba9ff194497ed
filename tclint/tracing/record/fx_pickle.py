"""The graph of a trace as bytes, for another process that has the same operators."""

from __future__ import annotations

import functools
import io
import pickle
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from tclint.tracing.values.operators import OperatorFacts, facts_of

_ERASED = -1
"""In the place of a node that is not in the graph: of a composite operator whose parts stand for it."""


def dump_fx(graph: FxGraph) -> bytes | None:
    """The nodes, with their tensors on meta; None where one of them holds what only this process has."""
    nodes = list(graph.nodes)
    file = io.BytesIO()
    pickler = _Pickler(file, {node: place for place, node in enumerate(nodes)})
    try:
        for node in nodes:
            pickler.dump((node.op, node.target, node.args, node.kwargs, node.name, node.meta))
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError, ValueError):
        return None
    return file.getvalue()


def load_fx(data: bytes) -> FxGraph:
    """The graph that `dump_fx` was given.

    Raises:
        LookupError: this process lacks an operator of it.
    """
    graph, nodes = FxGraph(), list[Node]()
    file = io.BytesIO(data)
    unpickler = _Unpickler(file, nodes)
    while file.tell() < len(data):
        try:
            *node, meta = unpickler.load()
        except AttributeError as error:
            raise LookupError(f"the torch.fx nodes need an operator that is not here: {error}") from None
        nodes.append(graph.create_node(*node))
        nodes[-1].meta = meta
    return graph


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, places: dict[Node, int]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._places = places

    def persistent_id(self, value: Any) -> int | None:
        return self._places.get(value, _ERASED) if isinstance(value, Node) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            strides = value.stride() if value.layout == torch.strided else None
            return _tensor, (tuple(value.shape), strides, value.dtype, value.requires_grad)
        if isinstance(value, torch._ops.OpOverload):
            return _operator, (str(value),)
        if isinstance(value, torch._ops.HigherOrderOperator):
            return _operator, (f"higher_order.{value.name()}",)
        if isinstance(value, OperatorFacts) and facts_of(value.function) is value:
            return facts_of, (value.function,)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, nodes: list[Node]) -> None:
        super().__init__(file)
        self._nodes = nodes

    def persistent_load(self, place: int) -> Node | None:
        return None if place == _ERASED else self._nodes[place]


def _operator(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), torch.ops)


def _tensor(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype, requires_grad: bool
) -> torch.Tensor:
    made = (
        torch.empty(shape, dtype=dtype, device="meta")
        if strides is None
        else torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    )
    return made.requires_grad_(requires_grad)
