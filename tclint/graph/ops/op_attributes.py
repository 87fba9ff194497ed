"""An operator's attributes in little memory: a dict takes three times as much as its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Packed = tuple[Any, ...]
"""Names, types (1, 1.0 and True are equal) and values; of a list a tuple of its items', and one of them."""


def pack(attributes: Mapping[str, Any], share: Callable[[Any], Any]) -> Packed | Mapping[str, Any]:
    """The attributes packed, in one object for all equal ones; unpacked where a list holds lists.

    Args:
        share: hands back the first of equal values that it was given.
    """
    values = attributes.values()
    # By way of a list: a tuple of something without a length is made for ten and cut, and Python keeps
    # thousands of the pieces.
    types = tuple(
        [tuple([type(item) for item in value]) if type(value) is list else type(value) for value in values]
    )
    items = [tuple(value) if type(value) is list else value for value in values]
    try:
        packed: Packed = share((share(tuple(attributes)), share(types), *items))
    except TypeError:  # not hashable
        return attributes
    return packed


def unpack(packed: Packed) -> dict[str, Any]:
    """The attributes that were packed."""
    names, types, *values = packed
    return {
        name: list(value) if type(kind) is tuple else value
        for name, kind, value in zip(names, types, values, strict=True)
    }
