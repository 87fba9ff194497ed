"""What a source pass knows of a file before any program is run."""

from __future__ import annotations

from dataclasses import dataclass

from tclint.source.source_rule import SourceRule
from tclint.source.syntax.notebooks import Notebook


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file that is linted."""

    path: str
    written: bytes
    """As it stands on the disk."""
    data: bytes
    """Its program: of a notebook the code of its cells."""
    notebook: Notebook | None
    rules: tuple[SourceRule, ...]
    """Those that it concerns."""
    is_named: bool
    """It is linted for its own sake, not as one file of a folder."""
