"""Values that are referred to by number."""

from __future__ import annotations

from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Numbered(Generic[_Value]):
    """Different values in the order in which they came."""

    __slots__ = ("_numbers", "values")

    def __init__(self) -> None:
        self.values: list[_Value] = []
        self._numbers: dict[_Value, int] = {}

    def number(self, value: _Value) -> int:
        """The value's place in `values`, where it is put if no equal one stands there."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number
