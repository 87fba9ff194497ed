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

from tclint.core.errors import TargetError
from tclint.graph.ops import Graph
from tclint.tracing.record.fx_pickle import dump_fx, load_fx
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
