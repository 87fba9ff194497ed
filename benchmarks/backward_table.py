"""Sums up the rows of backward_truth.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any


def summarize(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The share of identical products, the error of the saved bytes, and what differs."""
    compared = [row for row in rows if row["result"] == "compared"]
    for row in compared:
        yield str(row["name"])
    yield str(Counter(row["result"].split(":")[0] for row in rows))
