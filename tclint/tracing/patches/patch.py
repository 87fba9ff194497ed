"""What a patch of torch is, and the list of all of them.

A patch is a context manager: entering applies it, leaving puts back what was there. Its function says what it
replaces and why; docs/explanation/architecture.md shows the list.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any, ParamSpec

_Arguments = ParamSpec("_Arguments")

RUN_WITH = ("2.4", "2.6", "2.13", "2.14")
"""Versions of torch that the tests of tracing were run with."""

PATCHES: list[Patch] = []
"""In the order in which their modules are imported."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One patch, for the docs."""

    name: str
    """The context manager's name, with its module in this package: 'gpu.fake_cuda'."""
    replaces: str
    """What of torch, as a reader would look it up."""
    why: str
    undone: str


def patch(
    *, replaces: str, why: str, undone: str = "when the block ends"
) -> Callable[
    [Callable[_Arguments, Iterator[None]]], Callable[_Arguments, contextlib.AbstractContextManager[None]]
]:
    """Make a context manager of a generator function, and list it."""

    def make(
        function: Callable[_Arguments, Iterator[None]],
    ) -> Callable[_Arguments, contextlib.AbstractContextManager[None]]:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        PATCHES.append(Patch(name, replaces, why, undone))
        return contextlib.contextmanager(function)

    return make


class patched:
    """Set attributes that exist for the length of the block; under `confined`, for its thread alone.

    Args:
        replacements: (owner, attribute, value); those that this version of torch lacks are left out. With the
            attribute '__code__' a function does what another one does, also where it was imported by name.
    """

    __slots__ = ("_before", "_replacements")

    def __init__(self, replacements: Sequence[tuple[Any, str, Any]]) -> None:
        self._replacements = tuple(replacements)
        self._before: list[Any] = []

    def __enter__(self) -> None:
        # vars() keeps the descriptor (staticmethod, classmethod) that getattr would unwrap.
        self._before = [
            vars(owner).get(name, getattr(owner, name)) if hasattr(owner, name) else _ABSENT
            for owner, name, _ in self._replacements
        ]
        for (owner, name, value), before in zip(self._replacements, self._before, strict=True):
            if before is not _ABSENT:
                setattr(owner, name, _replacement(owner, value, before))

    def __exit__(self, *_error: object) -> None:
        for (owner, name, _), before in zip(
            reversed(self._replacements), reversed(self._before), strict=True
        ):
            if before is not _ABSENT:
                setattr(owner, name, before)


class _Confinement:
    thread: int | None = None
    """The only thread for which patches hold; None: they hold for all."""
    interrupt: Callable[[], None] | None = None
    """Raises what waits to be raised."""


_confinement = _Confinement()


@contextlib.contextmanager
def confined(interrupt: Callable[[], None]) -> Iterator[None]:
    """For the length of the block, what is patched is so for this thread; others find what they always found.

    Args:
        interrupt: called where the code that is traced may be left: `interruption_point`.
    """
    before = _confinement.thread, _confinement.interrupt
    _confinement.thread, _confinement.interrupt = threading.get_ident(), interrupt
    try:
        yield
    finally:
        _confinement.thread, _confinement.interrupt = before


def confine_no_more() -> None:
    """In a forked child: no other thread is there."""
    _confinement.thread = _confinement.interrupt = None


def interruption_point() -> None:
    """Raise what a signal had to say, where the trace is one that must not be split just anywhere."""
    if _confinement.interrupt is not None:
        _confinement.interrupt()


def _replacement(owner: Any, value: Any, before: Any) -> Any:
    if isinstance(before, CodeType):
        return _code_calling(_in_thread(value, copied_function(owner)), before)
    if isinstance(before, classmethod) and isinstance(value, classmethod):
        return classmethod(_in_thread(value.__func__, before.__func__))
    return _in_thread(value, before) if callable(value) and callable(before) else value


def _in_thread(value: Any, before: Any) -> Any:
    """What is one function in the thread that patches are confined to, and another in all others."""
    thread = _confinement.thread
    if thread is None:
        return value

    @functools.wraps(before)
    def either(*args: Any, **kwargs: Any) -> Any:
        return (value if threading.get_ident() == thread else before)(*args, **kwargs)

    return either


def copied_function(function: FunctionType) -> FunctionType:
    """A function that does what this one does now, whatever becomes of its code."""
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _code_calling(function: Any, before: CodeType) -> CodeType:
    """Code without variables of its own, which `__code__` of any function without them takes."""
    constants = _call_marked.__code__.co_consts
    code = _call_marked.__code__.replace(
        co_consts=tuple(function if constant == _MARK else constant for constant in constants)
    )
    return code.replace(co_name=before.co_name)


_MARK = "the function to call"


def _call_marked(*args: Any, **kwargs: Any) -> Any:
    function: Any = "the function to call"  # _MARK, as a constant
    return function(*args, **kwargs)


def calling_frame() -> FrameType | None:
    """The frame that called the function which asks for it, without those of this module."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


_ABSENT = object()


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """Stands for a function whose effect a trace does not need."""
    return


def itself(given: Any, *_args: Any, **_kwargs: Any) -> Any:
    """Stands for a function that would hand back its argument changed."""
    return given
