"""What a forked child hands back: a value, or the error that the caller is to see; and its warnings."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import pickle
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from tclint.core.errors import TargetError
from tclint.graph.ops import Graph
from tclint.tracing.values.operators import OperatorFacts, facts_of
from tclint.tracing.worker.targets import describe


@dataclasses.dataclass(frozen=True)
class _Sent:
    """An object that user code may have made: it may refuse to be made again in another process."""

    data: bytes
    """b"": it refuses here already."""
    text: str

    @classmethod
    def of(cls, value: Any) -> _Sent:
        data = b""
        with contextlib.suppress(BaseException):
            made = pickle.dumps(value)
            if type(pickle.loads(made)) is type(value):
                data = made
        return cls(data, describe(value) if isinstance(value, BaseException) else "")

    def read(self) -> Any:
        """The object; None where there is none."""
        with contextlib.suppress(Exception):
            return pickle.loads(self.data)
        return None


@dataclasses.dataclass(frozen=True)
class _Told:
    """A warning."""

    given: _Sent
    """Its message and category."""
    text: str
    path: str
    line: int


@dataclasses.dataclass(frozen=True)
class _HandedBack:
    name: str
    value: Any = None
    error: _Sent | None = None
    cause: _Sent | None = None
    """What the user's code raised, where `error` says so in a sentence."""
    trace: str = ""
    """The traceback of what the user's code raised: its frames are not handed back."""
    warnings: tuple[_Told, ...] = ()


class _InChild(Exception):
    """Shows where an error was raised, as if its frames were here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


_seen: dict[Any, Any] = {}
"""Which warnings were shown, as Python keeps it for those of a module."""


def packed(work: Callable[[], Any], name: str) -> bytes:
    """What `work()` returned or raised, for `unpacked` in another process.

    Args:
        name: of what it works on, for an error that no other process can have.
    """
    told: list[_Told] = []

    def show(message: Warning | str, category: type[Warning], path: str, line: int, *_: Any) -> None:
        told.append(_Told(_Sent.of((message, category)), str(message), path, line))

    setattr(warnings, "showwarning", show)  # noqa: B010  for good: the process is the child's
    try:
        handed = _HandedBack(name, work())
    except BaseException as error:
        cause = error.__cause__ if isinstance(error, TargetError) else None
        raised = cause or error
        is_told = raised is error and isinstance(error, TargetError)
        trace = "" if is_told else "".join(traceback.format_exception(raised))
        handed = _HandedBack(name, None, _Sent.of(error), None if cause is None else _Sent.of(cause), trace)
    return _dumps(dataclasses.replace(handed, warnings=tuple(told)))


def unpacked(data: bytes) -> Any:
    """What `packed` was given to call returned; its warnings are given here.

    Raises:
        BaseException: what it raised, with the types that it had where they can be had here.
    """
    handed: _HandedBack = pickle.loads(data)
    for one in handed.warnings:
        message, category = one.given.read() or (one.text, UserWarning)
        warnings.warn_explicit(message, category, one.path, one.line, registry=_seen)
    if handed.error is None:
        return handed.value
    error, cause = handed.error.read(), None if handed.cause is None else handed.cause.read()
    if error is None:
        error = TargetError(f"{handed.name} raised {handed.error.text}.", details=handed.trace)
    shown = _InChild(handed.trace) if handed.trace else None
    if cause is None:
        raise error from shown
    cause.__cause__ = shown
    raise error from cause


def _dumps(handed: _HandedBack) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(handed)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Graphs go with their torch.fx nodes, which are read only when somebody asks for them."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Graph and value.fx is not None:
            return _with_fx, (dataclasses.replace(value, fx=None), dump_fx(value.fx()))
        return NotImplemented


def _with_fx(graph: Graph, nodes: bytes | None) -> Graph:
    if nodes is None:
        return graph
    return dataclasses.replace(graph, fx=functools.cache(functools.partial(load_fx, nodes)))


_ERASED = -1
"""In the place of a node that is not in the graph: of a composite operator whose parts stand for it."""


def dump_fx(graph: FxGraph) -> bytes | None:
    """The nodes, with their tensors on meta; None where one of them holds what only this process has."""
    nodes = list(graph.nodes)
    file = io.BytesIO()
    pickler = _NodePickler(file, {node: place for place, node in enumerate(nodes)})
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
    unpickler = _NodeUnpickler(file, nodes)
    while file.tell() < len(data):
        try:
            *node, meta = unpickler.load()
        except AttributeError as error:
            raise LookupError(f"the torch.fx nodes need an operator that is not here: {error}") from None
        nodes.append(graph.create_node(*node))
        nodes[-1].meta = meta
    return graph


class _NodePickler(pickle.Pickler):
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


class _NodeUnpickler(pickle.Unpickler):
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
