"""The rows of a format's table that say which keys describe the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """The meaning of one key; tables/README.md explains the fields."""

    sets: str
    keys: tuple[tuple[str, ...], ...] = ()
    values: Mapping[str, object] | None = None
    when: Mapping[str, str] = field(default_factory=dict)
    default: object = None
    sums: bool = False


def rows_of(tables: Mapping[str, Mapping[str, Any]], name: str) -> tuple[Row, ...]:
    """The rows of a format, then those of the format that it continues.

    Args:
        tables: the tables of all formats by the names of their files.
        name: the name of the format's file.
    """
    table = tables[name]
    own = tuple(_row(row) for row in table.get("step", ()))
    after = table.get("step_as_in")
    more = rows_of(tables, after) if after is not None else ()
    if not table.get("step_defaults", True):
        more = tuple(replace(row, default=None) for row in more)
    return (*own, *more)


def _row(row: Mapping[str, Any]) -> Row:
    keys = row.get("keys", ())
    return Row(
        row["sets"],
        tuple((key,) if isinstance(key, str) else tuple(key) for key in keys),
        row.get("values"),
        row.get("when", {}),
        row.get("default"),
        row.get("sums", False),
    )
