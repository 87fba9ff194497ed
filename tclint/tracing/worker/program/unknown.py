"""The value of what could not be run: anything can be asked of it, and nothing can be decided by it."""

from __future__ import annotations

from typing import Any, NoReturn


class UnknownUsed(Exception):
    """A program needs the value of something unknown."""


class Unknown:
    """What a failed statement would have made. Parts of it, calls of it and sums with it are unknown, too;
    a condition, a loop, a text or a number of it raises, so that nothing known ever comes of it."""

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)  # what libraries look for in numbers, arrays and classes
        return self

    def __setattr__(self, name: str, value: object) -> None:
        pass

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def __call__(self, *_args: object, **_keywords: object) -> Unknown:
        return self


def _unknown(self: Unknown, *_others: object) -> Unknown:
    return self


def _raise(_self: Unknown, *_others: object) -> NoReturn:
    raise UnknownUsed


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_QUESTIONS = ("bool", "contains", "float", "format", "fspath", "hash", "index", "int", "iter", "len", "next")
for _name in (
    *_OPERATORS,
    *(f"r{name}" for name in _OPERATORS),
    *("getitem", "neg", "invert", "abs", "lt", "le", "gt", "ge", "eq", "ne", "enter"),
):
    setattr(Unknown, f"__{_name}__", _unknown)
for _name in (*_QUESTIONS, "str", "repr"):
    setattr(Unknown, f"__{_name}__", _raise)
Unknown.__exit__ = lambda *_: None  # type: ignore[attr-defined]
UNKNOWN = Unknown()
