"""The files of a program, with their tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from tclint.source.run.blocks import Step, counters_of, steps_of
from tclint.source.syntax.positions import Span
from tclint.source.syntax.tables import Function, Import, Tables


class File:
    """A file to run: one of the project, or the summary of a library."""

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
        """The absolute path; for a library's summary its name."""
        self.tables = tables
        self.spans = spans
        self.lines = lines
        self.name = name
        self.is_library = is_library
        self._steps: dict[int, list[Step]] = {}
        self._imports: dict[int, dict[str, list[Import]]] = {}
        self._counters: dict[int, frozenset[str]] = {}

    def steps(self, function: Function) -> list[Step]:
        """The statements of a function as a tree."""
        found = self._steps.get(function.index)
        if found is None:
            found = self._steps[function.index] = steps_of(function)
        return found

    def imports(self, function: Function) -> dict[str, list[Import]]:
        """The imports of a scope by the name that they bind."""
        found = self._imports.get(function.index)
        if found is None:
            found = self._imports[function.index] = {}
            for item in function.imports:
                found.setdefault(item.name, []).append(item)
        return found

    def counters(self, function: Function) -> frozenset[str]:
        """The variables of a function that it adds to, such as `step` in `step += 1`."""
        found = self._counters.get(function.index)
        if found is None:
            found = self._counters[function.index] = counters_of(function)
        return found

    @cached_property
    def counted_attributes(self) -> frozenset[str]:
        """The attributes that code anywhere in the file adds to."""
        return frozenset(
            name.rpartition(".")[2]
            for function in self.tables.functions
            for name in self.counters(function)
            if "." in name
        )

    @cached_property
    def counted_globals(self) -> frozenset[str]:
        """The variables of the module, or of an enclosing function, that a function adds to."""
        return frozenset(
            name
            for function in self.tables.functions
            for name in self.counters(function) & function.outer_names
        )

    def generates(self, function: Function) -> bool:
        """Whether a function is a generator."""
        from tclint.source.syntax.tables import Return

        return any(isinstance(event, Return) and event.is_yield for event in function.events)

    def __repr__(self) -> str:
        return self.path
