"""Decides which functions and classes are worth running although the program does not reach them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from tclint.source.run.files import File
from tclint.source.run.values import FunctionValue

_WORD = re.compile(r"\w+")
_DEFINES = re.compile(r"(?:async +def|def|(class)) +(\w+)")
_ASSIGNED = re.compile(r"^[ \t]*(?:self\.)?(\w+)[^=\n]*=(?!=)")
_METHOD = re.compile(r"^[ \t]+(?:async +)?def +(\w+)", re.MULTILINE)
_OF_TRAINING = (".backward(", ".step(", ".zero_grad(", "caler", "autocast", "_step(", ".fit(")
"""Code that trains is run whatever the rules look for, since a rule on scalers asks about the steps as
well."""


class Entries:
    """The functions and classes in which rules may find something: those whose text contains a token that a
    rule looks for, those that train, and those that lead to one of them.

    Args:
        tokens: texts that rules look for; None: everything is worth running.
        is_run: tells whether all functions of a file with some qualified names have run.
    """

    def __init__(
        self, tokens: tuple[str, ...] | None, is_run: Callable[[File, frozenset[str]], bool]
    ) -> None:
        self._pattern = (
            None if tokens is None else re.compile("|".join(map(_pattern_of, (*tokens, *_OF_TRAINING))))
        )
        self._is_run = is_run
        self._files_of: dict[str, list[File]] = {}
        """Name -> the files that define it."""
        self._holding: dict[tuple[File, str], frozenset[str]] = {}
        """(file, function or class) -> its functions and methods that contain a token, by qualified name."""
        self._words: dict[tuple[File, str], frozenset[str]] = {}
        self._files: set[File] = set()
        self._led: set[tuple[File, str]] | None = None
        self._tried: set[tuple[File, str]] = set()
        """Functions for whose sake one that leads to them was run; no other one is run for them."""
        self._used_up: set[tuple[File, str]] = set()

    def add(self, file: File) -> None:
        """Add a file that is part of the program."""
        if file in self._files or self._pattern is None:
            return
        self._files.add(file)
        self._led = None
        # An object made on a line with a token may be used elsewhere under its name.
        made = {
            match[1]
            for line in file.lines()
            if self._pattern.search(line) and (match := _ASSIGNED.match(line)) is not None
        }
        for name, is_class, text in _definitions(file):
            self._words[file, name] = frozenset(_WORD.findall(text))
            self._files_of.setdefault(name, []).append(file)
            self._holding[file, name] = frozenset(
                inner
                for inner, part in (_methods(name, text) if is_class else [(name, text)])
                if self._pattern.search(part) or not made.isdisjoint(_WORD.findall(part))
            )

    def concerns(self, file: File, name: str) -> bool:
        """Whether a function or class of a file contains a token or leads to one."""
        return self._pattern is None or (file, name) in self._leading

    @property
    def _leading(self) -> set[tuple[File, str]]:
        """The functions and classes that contain a token, and those that lead to one by the names they
        use."""
        if self._led is None:
            readers: dict[str, list[tuple[File, str]]] = {}
            for at, words in self._words.items():
                for word in words & self._files_of.keys():
                    readers.setdefault(word, []).append(at)
            self._led = {at for at, holding in self._holding.items() if holding}
            pending = list(self._led)
            while pending:
                further = set(readers.get(pending.pop()[1], ())) - self._led
                self._led |= further
                pending += further
        return self._led

    def holding(self, file: File) -> frozenset[str]:
        """The functions and methods of a file that contain a token, by qualified name."""
        held = (self._holding.get((file, name), frozenset()) for name, _, _ in _definitions(file))
        return frozenset().union(*held)

    def method_concerns(self, value: FunctionValue, words: frozenset[str]) -> bool:
        """Whether a method contains a token or leads to one.

        Args:
            words: the names that it reads.
        """
        at = (value.file, value.function.qualified_name.partition(".")[0])
        return (
            self._pattern is None
            or value.function.qualified_name in self._holding.get(at, ())
            or any(self.concerns(file, word) for word in words for file in self._files_of.get(word, ()))
        )

    def worth(self, file: File, name: str) -> bool:
        """Whether running a function or class of a file may reach code with tokens that has not run yet."""
        if self._pattern is None:
            return True
        for at in (reached := self._reached(file, name, self._used_up)):
            holding = self._holding.get(at)
            is_reason = at not in self._tried or at == (file, name)
            if holding and is_reason and not self._is_run(at[0], holding):
                self._tried.add(at)
                return True
        self._used_up |= reached
        return False

    def _reached(self, file: File, name: str, besides: set[tuple[File, str]]) -> set[tuple[File, str]]:
        """A function or class and all that its text names, directly or indirectly."""
        found = {(file, name)}
        pending = list(found)
        while pending:
            for word in self._words.get(pending.pop(), ()):
                further = {(other, word) for other in self._files_of.get(word, ())} - found - besides
                found |= further
                pending += further
        return found


def _pattern_of(token: str) -> str:
    """A pattern for a token; an attribute must match whole, so that '.grad' is not found in
    `.grad_checkpointing`."""
    return re.escape(token) + (r"\b" if token[:1] == "." and token[-1:].isalnum() else "")


@lru_cache(maxsize=512)
def _definitions(file: File) -> tuple[tuple[str, bool, str], ...]:
    return tuple(_split("\n".join(file.lines())))


def _split(text: str) -> Iterator[tuple[str, bool, str]]:
    """The top-level functions and classes of a text, each with the text up to the next one."""
    lines = text.split("\n")
    starts = [(at, match) for at, line in enumerate(lines) if (match := _DEFINES.match(line))]
    for number, (at, match) in enumerate(starts):
        end = starts[number + 1][0] if number + 1 < len(starts) else len(lines)
        yield match[2], match[1] is not None, "\n".join(lines[at:end])


def _methods(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Qualified name and text of each method of a class."""
    starts = list(_METHOD.finditer(text))
    for number, match in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        yield f"{name}.{match[1]}", text[match.start() : end]
