"""One program as rules see it: its record, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tclint.source.run.facts import Facts
from tclint.source.run.files import File
from tclint.source.run.library import library
from tclint.source.run.programs import run
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
    """Paths of the files that are linted; findings are about these."""

    @classmethod
    def of(cls, file: File, project: ProjectFiles, others: Iterable[File] = ()) -> Program:
        """Run a file, and what of other files of its program it does not reach."""
        linted = tuple(others)
        record = run(file, project, linted)
        within = frozenset(item.path for item in linted) or frozenset({file.path})
        return cls(file, record, Facts(record, library()), project.read, within)

    def place_of(self, event: Event) -> Place | None:
        """Where the linted files say what an event does: itself, or by the call that led to it."""
        for place in reversed(event.places):
            if place.file.path in self.within:
                return place
        return None
