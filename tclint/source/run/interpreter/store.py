"""Writes to variables, fields and items, kept so that branches can run one after the other and be joined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tclint.source.run.values import Option, Path, Value, join

Cells = dict[Any, Value]
Changes = dict[tuple[int, Any], tuple[Cells, Any, "Value | None"]]
"""(identity of the cells, key) -> (cells, key, value); the value None means that the key is gone."""


class Store:
    """A trail of overwritten values, so that a branch can be undone and joined with another."""

    def __init__(self) -> None:
        self._trail: list[tuple[Cells, Any, Value | None]] = []
        self._depth = 0

    def write(self, cells: Cells, key: Any, value: Value) -> None:
        if self._depth:
            self._trail.append((cells, key, cells.get(key)))
        cells[key] = value

    def start(self) -> int:
        """Begin a branch."""
        self._depth += 1
        return len(self._trail)

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """A context whose writes stay even if the current branch is undone, since a module runs only once."""
        trail, depth = self._trail, self._depth
        self._trail, self._depth = [], 0
        try:
            yield
        finally:
            self._trail, self._depth = trail, depth

    def undo(self, mark: int) -> Changes:
        """Undo the branch that began at a mark and return its changes."""
        changes: Changes = {}
        trail = self._trail
        while len(trail) > mark:
            cells, key, before = trail.pop()
            at = (id(cells), key)
            if at not in changes:
                changes[at] = (cells, key, cells.get(key))
            if before is None:
                cells.pop(key, None)
            else:
                cells[key] = before
        self._depth -= 1
        return changes

    def keep(self, changes: Changes) -> None:
        """Apply the changes of a branch that is the only one which can have run."""
        for cells, key, value in changes.values():
            if value is not None:
                self.write(cells, key, value)

    def merge(self, branches: list[tuple[Changes, Path]]) -> None:
        """Join the changes of several branches, one of which ran; each comes with the tests that led to
        it."""
        written = {at: change[:2] for changes, _ in branches for at, change in changes.items()}
        for at, (cells, key) in written.items():
            before = cells.get(key)
            options: list[Option] = []
            for changes, guard in branches:
                changed = changes.get(at)
                value = changed[2] if changed is not None else before
                if value is not None:
                    options.append(Option(value, guard))
            if options:
                self.write(cells, key, join(options))
