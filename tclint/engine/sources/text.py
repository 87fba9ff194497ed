"""A linted file as a source pass knows it before it runs any program."""

from __future__ import annotations

from dataclasses import dataclass

from tclint.source.source_rule import SourceRule
from tclint.source.syntax.notebooks import Notebook


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file that is linted."""

    path: str
    written: bytes
    """The bytes on the disk."""
    data: bytes
    """The bytes of its program; for a notebook the code of its cells."""
    notebook: Notebook | None
    rules: tuple[SourceRule, ...]
    """The rules that it concerns."""
    is_named: bool
    """Whether the file itself was named, and not just its folder."""
