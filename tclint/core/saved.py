"""Values as JSON and back, exactly: data classes of tclint, tuples, mappings, sets, numbers and text."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection, Mapping
from typing import Any


def picked(value: object, *names: str) -> dict[str, Any]:
    """Attributes of a value by their names."""
    return {name: getattr(value, name) for name in names}


def to_json(value: Any, leave_out: Collection[str] = ()) -> Any:
    """Values that `json.dumps` takes, equal ones for equal values; fields of these names are None in it.

    Raises:
        TypeError: it holds something else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {"of": "dict", "": [[to_json(key), to_json(item, leave_out)] for key, item in value.items()]}
    if isinstance(value, list | tuple | frozenset):
        items = [to_json(item, leave_out) for item in value]
        return {
            "of": type(value).__name__,
            "": sorted(items, key=repr) if value.__class__ is frozenset else items,
        }
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("tclint."):
        kept = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.init)
        fields = {name: None if name in leave_out else to_json(item, leave_out) for name, item in kept}
        return {"of": f"{type(value).__module__}:{type(value).__qualname__}", "": fields}
    raise TypeError(f"{type(value).__name__} cannot be kept")


def from_json(data: Any) -> Any:
    """What `to_json` was given.

    Raises:
        ValueError, TypeError, KeyError: the data are not its own.
    """
    if not isinstance(data, dict):
        return data
    kind, content = data["of"], data[""]
    if kind == "dict":
        return {from_json(key): from_json(item) for key, item in content}
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](map(from_json, content))
    module, _, name = kind.partition(":")
    # Nothing but data of our own is made, whoever wrote it.
    made = getattr(importlib.import_module(module), name) if module.startswith("tclint.") else None
    if not (isinstance(made, type) and dataclasses.is_dataclass(made)):
        raise ValueError(f"{kind} is no data class of tclint")
    return made(**{key: from_json(item) for key, item in content.items()})


_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "frozenset": frozenset}
