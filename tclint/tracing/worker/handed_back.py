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
from typing import Any, NamedTuple

from tclint.core.errors import TargetError
from tclint.graph.ops import Graph
from tclint.tracing.record.fx_pickle import dump_fx, load_fx
from tclint.tracing.worker.targets import describe


class _Told(NamedTuple):
    """A warning."""

    message: Warning | str
    category: type[Warning]
    path: str
    line: int


@dataclasses.dataclass(frozen=True)
class _HandedBack:
    value: Any = None
    error: BaseException | None = None
    cause: BaseException | None = None
    """What the user's code raised, where `error` says so in a sentence."""
    trace: str = ""
    """The traceback, whose frames are not handed back."""
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
        one = _Told(message, category, path, line)
        told.append(one if _can_be_sent(one) else _Told(str(message), UserWarning, path, line))

    setattr(warnings, "showwarning", show)  # noqa: B010  for good: the process is the child's
    try:
        value = work()
    except BaseException as error:
        return _dumps(_failed(error, name, tuple(told)))
    return _dumps(_HandedBack(value, warnings=tuple(told)))


def unpacked(data: bytes) -> Any:
    """What `packed` was given to call returned; its warnings are given here.

    Raises:
        BaseException: what it raised, with the types that it had.
    """
    handed: _HandedBack = pickle.loads(data)
    for one in handed.warnings:
        warnings.warn_explicit(one.message, one.category, one.path, one.line, registry=_seen)
    if handed.error is None:
        return handed.value
    shown = _InChild(handed.trace) if handed.trace else None
    if handed.cause is None:
        raise handed.error from shown
    handed.cause.__cause__ = shown
    raise handed.error from handed.cause


def _failed(error: BaseException, name: str, told: tuple[_Told, ...]) -> _HandedBack:
    cause = error.__cause__ if isinstance(error, TargetError) else error
    trace = "" if cause is None else "".join(traceback.format_exception(cause))
    if isinstance(error, TargetError):
        return _HandedBack(None, error, cause if _can_be_sent(cause) else None, trace, told)
    if _can_be_sent(error):
        return _HandedBack(None, error, None, trace, told)
    return _HandedBack(None, TargetError(f"{name} raised {describe(error)}.", details=trace), None, "", told)


def _can_be_sent(value: Any) -> bool:
    """Whether it can be made again: user code may have its say in that, and do anything."""
    with contextlib.suppress(BaseException):
        return type(pickle.loads(pickle.dumps(value))) is type(value)
    return False


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
