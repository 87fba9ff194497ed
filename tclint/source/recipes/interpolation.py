"""OmegaConf's interpolations, such as `${a.b}`, as far as the file itself resolves them."""

from __future__ import annotations

import re

from tclint.source.recipes.tree import Node

_REFERENCE = re.compile(r"\$\{\s*([\w.]+)\s*\}")
_MOST_STEPS = 10


def resolved(root: Node, node: Node) -> Node | None:
    """The node whose value a scalar stands for: itself, or the one that it names; None if the value comes
    from elsewhere, such as the environment."""
    for _ in range(_MOST_STEPS):
        if not isinstance(node.value, str) or "${" not in node.value:
            return node
        match = _REFERENCE.fullmatch(node.value.strip())
        named = root.at(match[1]) if match is not None else None
        if named is None:
            return None
        node = named
    return None
