"""The value of what could not be run: code may use it in any way but to decide something."""

from __future__ import annotations

from typing import Any, NoReturn


class UnknownUsed(Exception):
    """A program needs the value of something unknown."""


class Unknown:
    """What a failed statement would have made. Its parts, its calls and sums with it are unknown, too. Using
    it as a condition, a loop, a text or a number raises, so that nothing known is ever derived from it."""

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
