"""Trees of YAML, JSON and TOML files, in which every value has its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tclint.source.syntax.positions import Span


class NotReadable(Exception):
    """Raised for a file that is not valid; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place; the place of a key's value runs from the key to the end of a scalar."""

    value: object
    """A scalar, a list of nodes, or a dict from names to nodes."""
    span: Span

    @property
    def entries(self) -> dict[str, Node]:
        """The items of a mapping; empty for other nodes."""
        return self.value if isinstance(self.value, dict) else {}

    def at(self, path: str) -> Node | None:
        """The node under a dotted path; this one under ''."""
        node: Node | None = self
        for name in path.split(".") if path else ():
            node = node.entries.get(name) if node is not None else None
        return node

    def leaves(self) -> Iterator[tuple[str, Node]]:
        """(dotted path, node) of every node that is not a mapping."""
        for name, node in self.entries.items():
            if isinstance(node.value, dict):
                yield from ((f"{name}.{path}", leaf) for path, leaf in node.leaves())
            else:
                yield name, node

    def under(self, pattern: str) -> Iterator[Node]:
        """The nodes under a dotted path in which '*' stands for any key."""
        head, _, rest = pattern.partition(".")
        if not head:
            yield self
        elif head == "*":
            for node in self.entries.values():
                yield from node.under(rest)
        elif head in self.entries:
            yield from self.entries[head].under(rest)
