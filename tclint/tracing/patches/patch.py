"""What a patch of torch is, and the list of all of them.

A patch is a context manager: entering applies it, leaving puts back what was there. Its function says what it
replaces and why; docs/explanation/architecture.md shows the list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

_Arguments = ParamSpec("_Arguments")

RUN_WITH = ("2.6", "2.13", "2.14")
"""Versions of torch that the tests of tracing were run with."""

PATCHES: list[Patch] = []
"""In the order in which their modules are imported."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One patch, for the docs."""

    name: str
    """Of the context manager, with its module in this package: 'gpu.fake_cuda'."""
    replaces: str
    """What of torch, as a reader would look it up."""
    why: str
    undone: str
    versions: tuple[str, ...]
    """Of torch, that it was run with."""


def patch(
    *,
    replaces: str,
    why: str,
    undone: str = "when the block ends",
    versions: tuple[str, ...] = RUN_WITH,
) -> Callable[
    [Callable[_Arguments, Iterator[None]]],
    Callable[_Arguments, contextlib.AbstractContextManager[None]],
]:
    """Make a context manager of a generator function, and list it."""

    def make(
        function: Callable[_Arguments, Iterator[None]],
    ) -> Callable[_Arguments, contextlib.AbstractContextManager[None]]:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        PATCHES.append(Patch(name, replaces, why, undone, versions))
        return contextlib.contextmanager(function)

    return make


class patched:
    """Set attributes that exist for the length of the block.

    Args:
        replacements: (owner, attribute, value); those that this version of torch lacks are left out.
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
                setattr(owner, name, value)

    def __exit__(self, *_error: object) -> None:
        for (owner, name, _), before in zip(
            reversed(self._replacements), reversed(self._before), strict=True
        ):
            if before is not _ABSENT:
                setattr(owner, name, before)


_ABSENT = object()


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """Stands for a function whose effect a trace does not need."""
    return


def itself(given: Any, *_args: Any, **_kwargs: Any) -> Any:
    """Stands for a function that would hand back its argument changed."""
    return given
