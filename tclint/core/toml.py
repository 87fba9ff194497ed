"""TOML: text of users, and the tables that lie beside tclint's own modules."""

from __future__ import annotations

import sys
from typing import Any


def parse_toml(text: str) -> dict[str, Any]:
    """The table that a text holds.

    Raises:
        ValueError: it is not TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    table: dict[str, Any] = tomllib.loads(text)
    return table


def packaged_toml(package: str, name: str) -> dict[str, Any]:
    """The table of a file in one of tclint's packages: packaged_toml('tclint.cost', 'optimizers.toml')."""
    from importlib import resources

    return parse_toml(resources.files(package).joinpath(name).read_text(encoding="utf-8"))
