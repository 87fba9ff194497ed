"""One program as rules see it: its record, and what follows from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tclint.source.run.core import MOST_EVENTS
from tclint.source.run.facts import Facts
from tclint.source.run.files import File
from tclint.source.run.library import Library
from tclint.source.run.programs import functions_of, run
from tclint.source.run.project import ProjectFiles
from tclint.source.run.record import Record
from tclint.source.run.values import Event, Place


@dataclass
class Program:
    """A file that was run, with the files that it led to."""

    file: File
    record: Record
    facts: Facts
    files: list[File]
    within: frozenset[str]
    """Paths of the files that are linted and belong to it; findings are about these."""
    ran: frozenset[tuple[str, str]] = frozenset()
    """Functions that were run: (path, name)."""
    is_configuration: bool = False
    """The file is no Python, but sets what a framework does."""

    @classmethod
    def of(
        cls,
        file: File,
        project: ProjectFiles,
        paths: Collection[str] = (),
        tokens: tuple[str, ...] | None = None,
        events: int = MOST_EVENTS,
        is_module: bool = False,
        tables: Library | None = None,
    ) -> Program:
        """Run a file, and what rules look for in it and in others that it reads.

        Args:
            paths: the files that are linted; none: that one.
            tokens: what rules look for; None: anything.
            events: how many there may be.
            is_module: the file is part of a package, and nothing is known that starts it.
            tables: what is known of libraries; None: what tclint brings.
        """
        paths = paths or (file.path,)
        machine = run(file, project, paths, tokens, tables, events, is_module)
        record = machine.record
        within = frozenset(item.path for item in machine.frames if item.path in paths)
        facts = Facts(record, machine.library)
        return cls(file, record, facts, project.read, within, functions_of(machine, project))

    def place_of(self, event: Event) -> Place | None:
        """Where the linted files say what an event does: itself, or by the call that led to it."""
        for place in reversed(event.places):
            if place.file.path in self.within:
                return place
        return None
