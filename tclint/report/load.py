"""Reads reports that an earlier run wrote, as JSON or JSON Lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.report.formats.jsonlines import LISTS, document_of

SUFFIXES = (".json", ".jsonl")
_KNOWN_MAJOR = 1


def load_report(path: str | Path) -> dict[str, Any]:
    """The document of one report.

    Raises:
        UsageError: the file cannot be read, or is no report of a version that this tclint knows.
    """
    name = printable(str(path))
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"There is no report {name!r}; write one with --output json=FILE.") from None
    except OSError as error:
        raise UsageError(f"Cannot read the report {name!r}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name!r} is not a tclint report: it is not UTF-8 text.") from error
    try:
        document = _parse(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name!r} is not a tclint report: {printable(str(error))}.") from error
    _check(document, name)
    return document


def _parse(text: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2:
            raise
        value = document_of([_record(line) for line in lines])
    if not isinstance(value, dict):
        raise ValueError("it holds no object")
    if value.get("type") == "run":
        return document_of([value])
    return value


def _record(line: str) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("a line of it holds no object")
    return record


def _check(document: dict[str, Any], name: str) -> None:
    version = document.get("schema_version")
    match = re.fullmatch(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
    if match is None or not isinstance(document.get("tool"), dict):
        raise UsageError(f"{name!r} is not a tclint report: write one with --output json=FILE.")
    if int(match[1]) != _KNOWN_MAJOR:
        raise UsageError(
            f"{name!r} has the schema version {version}, which this tclint does not read; "
            "write it again with this version."
        )
    for part in LISTS:
        items = document.get(part)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise UsageError(
                f"{name!r} is not a complete tclint report: its {part!r} are missing or damaged."
            )
    for part, needed in _NEEDED.items():
        for item in document[part]:
            missing = needed - set(item)
            if missing:
                raise UsageError(
                    f"{name!r} is not a complete tclint report: {part!r} lack {', '.join(sorted(missing))}."
                )
            wrong = [key for key, kinds in _KINDS.items() if key in item and not isinstance(item[key], kinds)]
            if wrong:
                raise UsageError(
                    f"{name!r} is not a tclint report: {wrong[0]!r} in {part!r} is not of the type "
                    "it should be."
                )


_NEEDED: dict[str, frozenset[str]] = {
    "findings": frozenset(
        {"code", "name", "level", "message", "location", "effect", "fingerprint", "target"}
    ),
    "metrics": frozenset({"name", "unit", "value", "target", "gpu", "precision", "mode", "rule", "level"}),
    "entries": frozenset({"target", "inputs"}),
}
"""What readers of a report rely on; the rest of the schema they do without."""

_TEXT = (str, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("code", "name", "level", "message", "fingerprint", "target", "gpu", "precision"), _TEXT),
    **dict.fromkeys(("mode", "rule", "model", "unit"), _TEXT),
    "value": (int, float, type(None)),
    "location": (dict,),
    "effect": (dict,),
}
