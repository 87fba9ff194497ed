"""docs/reference/json.md: the fields of the JSON report, from its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HEAD = """# JSON report

`tclint --format json` writes it; `tclint schema` prints its JSON Schema, from which this page is made.
Fields may be added within a major `schema_version`, but none is removed or changes its meaning. Paths
are relative to the working directory and use `/`. `--format jsonl` writes the same parts, one record per
line.

"""
_PARTS = ("entry", "metrics", "memory", "finding", "location", "gpu_effect", "fix", "settings")


def schema_page(schema: dict[str, Any]) -> str:
    """The page, for a schema whose parts are in `$defs`."""
    lines = ["## Report", "", *_table(schema)]
    for name in _PARTS:
        part = schema["$defs"][name]
        lines += ["", f"## {name}", ""]
        if "description" in part:
            lines += [part["description"], ""]
        lines += _table(part)
    return HEAD + "\n".join(lines) + "\n"


def _table(part: dict[str, Any]) -> Iterator[str]:
    yield "| field | type | |"
    yield "|---|---|---|"
    required = part.get("required", ())
    for name, field in part.get("properties", {}).items():
        note = field.get("description", "")
        if name not in required:
            note = f"{note} Optional.".strip()
        yield f"| `{name}` | {_type(field)} | {note} |".replace("\n", " ")


def _type(field: dict[str, Any] | bool) -> str:
    if isinstance(field, bool):
        return ""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})" if name in _PARTS else name
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    for several in ("oneOf", "anyOf"):
        if several in field:
            return " or ".join(dict.fromkeys(_type(one) for one in field[several]))
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"object of {_type(field['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else kind
