"""OmegaConf's interpolations, such as `${a.b}`, as far as the file itself resolves them."""

from __future__ import annotations

import re
from collections.abc import Iterator

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


def dangling(root: Node) -> Iterator[Node]:
    """The scalars that refer to a key which the file does not have; resolvers such as `oc.env:` are none."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if isinstance(node.value, dict):
            nodes += reversed(node.value.values())
        elif isinstance(node.value, list):
            nodes += reversed(node.value)
        elif (
            isinstance(node.value, str)
            and _REFERENCE.fullmatch(node.value.strip())
            and resolved(root, node) is None
        ):
            yield node
