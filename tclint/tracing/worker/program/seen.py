"""What is asked of a program that is run for the arguments of a model, and what it showed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SIZE = "\0"
"""Stands in a text for a value that is not known and may be a size of the data."""


@dataclass(frozen=True)
class ProgramStart:
    """How to start a program."""

    script: str
    words: tuple[str, ...]
    """Its own arguments."""
    folder: str
    """To run in."""
    trains: bool


@dataclass(frozen=True)
class ProgramCall:
    """A call of the model's class, or of the function that builds it."""

    path: str
    line: int
    arguments: Mapping[str, str]
    """Those that are known, as `--arg` takes them."""
    sizes: Mapping[str, str]
    """Those that are or hold unknown values, which may be sizes of data, with `SIZE` for each."""
    untold: tuple[str, ...]
    """The other ones."""
    inputs: tuple[str, ...] = ()
    """Of the model's first call in training, as `--input` takes them, if the program got there."""


@dataclass(frozen=True)
class ProgramRun:
    """What a program showed, however far it got."""

    calls: tuple[ProgramCall, ...] = ()
    files: tuple[str, ...] = ()
    """Those that it read."""
    missing: tuple[str, ...] = ()
    """Those that it did not find."""
