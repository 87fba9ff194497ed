"""Shell scripts: the words of their commands, with the variables that they set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.syntax.positions import Span

_ASSIGNED = re.compile(
    r"^\s*(?:export\s+)?(\w+)=(\"[^\"$]*\"|'[^']*'|[^\s\"'$;|&]+)\s*(?:#.*)?$", re.MULTILINE
)
_SEVERAL = re.compile(r"\b(?:for|read(?:\s+-\w+)*)\s+(\w+)|\b(\w+)\+=")
"""Variables with a value after the other."""
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_ENDS = re.compile(r"[;|&>)]|<(?![^<>]+>$)|\d>")
"""What ends a command; `<file>` stands for a word of it that the reader fills in."""


class UnclosedQuote(ValueError):
    """`line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Word(NamedTuple):
    """One word of a command; variables of the script are filled in, others stay in it as `$name`."""

    text: str
    span: Span

    @property
    def is_known(self) -> bool:
        return "$" not in self.text and "`" not in self.text

    @property
    def is_end(self) -> bool:
        """Whether the command ends before it: `&&`, `|`, `2>&1`."""
        return _ENDS.match(self.text) is not None


def commands_in(text: str) -> Iterator[list[Word]]:
    """The words of each line, in which several commands may stand; lines that a backslash joins are one.

    A variable counts where the script gives it one value, if only where an argument is missing.

    Raises:
        UnclosedQuote: in a line of options.
    """
    known = _variables(text)
    words: list[Word] = []
    for number, line in enumerate(text.splitlines(), 1):
        goes_on = line.rstrip().endswith("\\")
        content = line.rstrip().removesuffix("\\")
        try:
            parts = shlex.split(content, comments=True)
        except ValueError as error:
            if words or content.lstrip().startswith("--"):
                raise UnclosedQuote(str(error).lower(), number) from error
            parts = []  # a text of several lines, which sets no option
        column = 0
        for part in parts:
            at = content.find(part, column)
            column = at if at >= 0 else column
            span = Span(number, column + 1, number, column + 1 + len(part))
            words.extend(Word(filled, span) for filled in _filled(part, known))
        if not goes_on:
            yield words
            words = []
    yield words


def command_at(words: list[Word], start: int) -> list[Word]:
    """The words from one on to the end of its command."""
    found: list[Word] = []
    for word in words[start:]:
        if word.is_end:
            break
        if word.text.endswith(";"):
            return [*found, Word(word.text[:-1], word.span)]
        found.append(word)
    return found


def _variables(text: str) -> dict[str, str]:
    values: dict[str, set[str]] = {}
    for name, value in _ASSIGNED.findall(text):
        values.setdefault(name, set()).add(value.strip("\"'"))
    several = {match[1] or match[2] for match in _SEVERAL.finditer(text)}
    return {name: found.pop() for name, found in values.items() if len(found) == 1 and name not in several}


def _filled(part: str, known: dict[str, str]) -> list[str]:
    filled = _VARIABLE.sub(lambda match: known.get(match[1], match[0]), part)
    # Options that a variable holds are words of their own.
    if filled.startswith("-") and _VARIABLE.fullmatch(part):
        return filled.split()
    return [filled]
