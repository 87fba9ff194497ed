"""One program as rules see it: its record, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tclint.source.run.facts import Facts
from tclint.source.run.files import File
from tclint.source.run.record import Record
from tclint.source.run.values import Event, Place


@dataclass
class Program:
    """A file that was run, with the files that it led to."""

    file: File
    record: Record
    facts: Facts
    files: list[File] = field(default_factory=list)

    def place_of(self, event: Event) -> Place | None:
        """Where the file that was run says what an event does: itself, or by the call that led to it."""
        for place in reversed(event.places):
            if place.file is self.file:
                return place
        return None
