"""Which kind of work each ATen operator is; the table itself is op_kinds.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from tclint.graph.ops import OP_KINDS, OpKind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _read_table() -> tuple[dict[str, OpKind], frozenset[str]]:
    text = (Path(__file__).parent / "op_kinds.toml").read_text(encoding="utf-8")
    kinds: dict[str, OpKind] = {}
    sometimes: frozenset[str] = frozenset()
    for kind, names in tomllib.loads(text).items():
        if kind == "view_or_copy":
            sometimes = frozenset(names)
            continue
        if kind not in OP_KINDS:
            raise ValueError(f"op_kinds.toml: {kind!r} is not an op kind")
        for name in names:
            if name in kinds:
                raise ValueError(f"op_kinds.toml: {name!r} stands under {kinds[name]!r} and {kind!r}")
            kinds[name] = kind
    return kinds, sometimes


# Read on import, which a worker does once for all models.
KINDS, VIEW_OR_COPY = _read_table()


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
