"""JSON Lines: the JSON report cut into records, one per line, for many entries and for log collectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tclint.engine.report import Report
from tclint.report.formats.json import clean, to_dict

LISTS: dict[str, str] = {
    "entries": "entry",
    "metrics": "metric",
    "findings": "finding",
    "skipped": "skipped",
    "errors": "error",
    "models_trained": "model_trained",
    "statistics": "statistic",
}
"""Record type of the items of each list of the JSON report."""

HEADER = ("schema_version", "tool", "provenance", "settings")


def render(report: Report) -> str:
    """One `run` record first, then every item of every list with its type, then one `summary` record."""
    lines = (json.dumps(clean(record), allow_nan=False) for record in records(to_dict(report)))
    return "".join(f"{line}\n" for line in lines)


def records(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of a JSON report; `document_of` puts them together again."""
    yield {"type": "run", **{name: document[name] for name in HEADER}}
    for name, kind in LISTS.items():
        for item in document[name]:
            yield {"type": kind, **item}
    yield {"type": "summary", **document["summary"]}


def document_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The JSON report that `records` took apart.

    Raises:
        ValueError: there is not exactly one run, or a record's type is unknown.
    """
    kinds = {kind: name for name, kind in LISTS.items()}
    document: dict[str, Any] = {name: [] for name in LISTS}
    for record in lines:
        content = {key: value for key, value in record.items() if key != "type"}
        kind = record.get("type")
        if kind == "run":
            if "schema_version" in document:
                raise ValueError("it holds several runs; split it at the records of type 'run'")
            document.update(content)
        elif kind == "summary":
            document["summary"] = content
        elif isinstance(kind, str) and kind in kinds:
            document[kinds[kind]].append(content)
        else:
            raise ValueError(f"it has a record of the unknown type {kind!r}")
    if "schema_version" not in document:
        raise ValueError("it has no record of type 'run'")
    return document
