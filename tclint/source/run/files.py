"""The files of a program, with their tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from tclint.source.run.blocks import Step, counters_of, steps_of
from tclint.source.syntax.positions import Span
from tclint.source.syntax.tables import Function, Import, Tables


class File:
    """One file that is run: a project's, or the text of a table that sums up a library."""

    def __init__(
        self,
        path: str,
        tables: Tables,
        spans: Callable[[], tuple[Span, ...]],
        lines: Callable[[], list[str]],
        *,
        name: str = "",
        is_library: bool = False,
    ) -> None:
        self.path = path
        """Absolute; of a library's summary its full name."""
        self.tables = tables
        self.spans = spans
        self.lines = lines
        self.name = name
        self.is_library = is_library
        self._steps: dict[int, list[Step]] = {}
        self._imports: dict[int, dict[str, list[Import]]] = {}
        self._counters: dict[int, frozenset[str]] = {}

    def steps(self, function: Function) -> list[Step]:
        """What a function does, as a tree."""
        found = self._steps.get(function.index)
        if found is None:
            found = self._steps[function.index] = steps_of(function)
        return found

    def imports(self, function: Function) -> dict[str, list[Import]]:
        """Imports of a scope by the name that they bind."""
        found = self._imports.get(function.index)
        if found is None:
            found = self._imports[function.index] = {}
            for item in function.imports:
                found.setdefault(item.name, []).append(item)
        return found

    def counters(self, function: Function) -> frozenset[str]:
        """Variables of a function to which something is added."""
        found = self._counters.get(function.index)
        if found is None:
            found = self._counters[function.index] = counters_of(function)
        return found

    @cached_property
    def counted_attributes(self) -> frozenset[str]:
        """Attributes to which something is added anywhere in the file."""
        return frozenset(
            name.rpartition(".")[2]
            for function in self.tables.functions
            for name in self.counters(function)
            if "." in name
        )

    @cached_property
    def counted_globals(self) -> frozenset[str]:
        """Variables of the module, or of a function around one, to which a function adds something."""
        return frozenset(
            name
            for function in self.tables.functions
            for name in self.counters(function) & function.outer_names
        )

    def generates(self, function: Function) -> bool:
        """Whether it is a generator."""
        from tclint.source.syntax.tables import Return

        return any(isinstance(event, Return) and event.is_yield for event in function.events)

    def __repr__(self) -> str:
        return self.path
