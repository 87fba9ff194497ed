"""One program as rules see it: its record and the facts derived from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tclint.source.run.facts import Facts
from tclint.source.run.files import File
from tclint.source.run.interpreter.core import MOST_EVENTS
from tclint.source.run.library import Library
from tclint.source.run.programs import functions_of, run
from tclint.source.run.project import ProjectFiles
from tclint.source.run.record import Record
from tclint.source.run.values import Event, Place


@dataclass
class Program:
    """A file that was run, together with the files that it led to."""

    file: File
    record: Record
    facts: Facts
    files: list[File]
    within: frozenset[str]
    """Paths of the linted files that belong to it; findings are about these."""
    ran: frozenset[tuple[str, str]] = frozenset()
    """The functions that were run, as (path, name)."""
    unreached: frozenset[str] = frozenset()
    """Those of the linted files of which the program itself runs nothing that matters to rules."""
    is_configuration: bool = False
    """Whether the file is a framework's configuration and not Python."""

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
        watched: str = "",
        guests: Collection[str] = (),
    ) -> Program:
        """Run a file, and the functions that matter to rules in it and in the linted files that it reads.

        Args:
            paths: the linted files; empty: only this file.
            tokens: texts that rules look for; None: everything matters.
            events: the most events to record.
            is_module: whether the file is part of a package and nothing is known to start it.
            tables: the tables of libraries; None: those that tclint ships.
            watched: the qualified name of functions whose calls are recorded, as events of kind 'enter'.
            guests: files that are linted only if the program runs something in them that matters to rules.
        """
        paths = paths or (() if guests else (file.path,))
        machine = run(file, project, paths, tokens, tables, events, is_module, watched, guests)
        record = machine.record
        read = frozenset(item.path for item in machine.frames)
        within = read & {*paths, *machine.reached.intersection(guests)}
        facts = Facts(record, machine.library)
        ran = functions_of(machine, project)
        return cls(file, record, facts, project.read, within, ran, within - machine.reached)

    def place_of(self, event: Event) -> Place | None:
        """The place of an event in the linted files: its own, or that of the call that led to it."""
        for place in reversed(event.places):
            if place.file.path in self.within:
                return place
        return None
