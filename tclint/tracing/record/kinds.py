"""Which kind of work each ATen operator is; the table itself is op_kinds.toml."""

from __future__ import annotations

from typing import Any

from tclint.core.toml import packaged_toml
from tclint.graph.ops import OpKind

# Read on import, which a worker does once for all models.
_TABLES: dict[Any, list[str]] = packaged_toml("tclint.tracing.record", "op_kinds.toml")
VIEW_OR_COPY = frozenset(_TABLES.pop("view_or_copy"))
KINDS: dict[str, OpKind] = {name: kind for kind, names in _TABLES.items() for name in names}


def kind_of(name: str, *, aliases_input: bool) -> OpKind:
    """The kind of an operator by its ATen base name; 'other' when the table does not know it.

    Args:
        name: 'conv2d', 'add', ... without overload and trailing underscore.
        aliases_input: the output shares memory with an input; decides 'view' or 'copy' for operators such
            as reshape that do either.
    """
    if name in VIEW_OR_COPY:
        return "view" if aliases_input else "copy"
    return KINDS.get(name, "other")
