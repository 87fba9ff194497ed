"""What YAML, JSON and TOML say, with the place of everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tclint.source.syntax.positions import Span


class NotReadable(Exception):
    """A file is broken; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands; of a value that a key has, from the key to the end of a scalar."""

    value: object
    """A scalar, a list of nodes, or a dict from names to nodes."""
    span: Span

    @property
    def entries(self) -> dict[str, Node]:
        """What a mapping holds; nothing where it is none."""
        return self.value if isinstance(self.value, dict) else {}

    def at(self, path: str) -> Node | None:
        """The node under a dotted path; this one under ''."""
        node: Node | None = self
        for name in path.split(".") if path else ():
            node = node.entries.get(name) if node is not None else None
        return node

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
