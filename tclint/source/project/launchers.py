"""Launchers, the files that start programs: shell scripts, configurations, pages with commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tclint.core.examples import code_of
from tclint.source.project.noted import note
from tclint.source.project.scripts import root_of
from tclint.source.syntax.positions import Span
from tclint.source.syntax.shell import UnclosedQuote, Word, command_at, commands_in

_SHELL = ("*.sh", "*.bash", "*.slurm", "Makefile")
_PAGES = ("*.md", "*.rst")
_NAMES = (*_SHELL, "*.y*ml", *_PAGES)

_PLACEHOLDER = re.compile(r"[<\[{]")
_LEFT_OPEN = re.compile(r"<|^[\[{]|^-.*[\[{]")
"""A word in place of which the reader writes one; `sizes=[1,2]` is no such word."""
_SEVERAL_WORDS = re.compile(r"<\w[^<>\n]*>")
CHOOSE_PRECISION = re.compile(
    rb"accelerate(\.commands\.|\s+)launch|mixed_precision|deepspeed|(fabric|lightning) run"
    rb"|--(bf16|fp16|tf32)\b"
)
"""Ways to choose the precision from outside: accelerate sets ACCELERATE_MIXED_PRECISION, Fabric's command
LT_PRECISION."""

KEEP_MASTERS = re.compile(rb"deepspeed|fsdp|megatron", re.IGNORECASE)
"""Ways to start a program that may keep float32 copies of 16-bit weights."""


class Passed(NamedTuple):
    """An option that a command passes."""

    name: str
    """As written: '--batch-size'."""
    text: str | None
    """None: nothing follows it."""
    span: Span

    @property
    def is_known(self) -> bool:
        return self.text is None or Word(self.text, self.span).is_known


@dataclass(frozen=True)
class Launch:
    """A command that starts a program."""

    path: str
    """Of the shell script or page that holds it."""
    before: tuple[str, ...]
    """The words before the program's name, with those of commands on the same line."""
    words: tuple[Word, ...]
    """The program's own arguments."""
    is_shown: bool = False
    """Whether a page shows it, which may leave values to the reader: `--data <folder>`."""

    @cached_property
    def options(self) -> list[Passed]:
        """The program's own, in order."""
        found = []
        for index, word in enumerate(self.words):
            if _is_option(word.text):
                name, has_value, value = word.text.partition("=")
                following = self.words[index + 1].text if index + 1 < len(self.words) else "-"
                text = value if has_value else None if _is_option(following) else following
                if not (self.is_shown and _PLACEHOLDER.search(text or "")):
                    found.append(Passed(name, text, word.span))
        return found

    @cached_property
    def words_to_pass(self) -> list[str] | None:
        """The words to start the program with, without what a page leaves to the reader; None: a variable
        holds some."""
        if self.is_open or not all(word.is_known for word in self.words):
            return None
        found: list[str] = []
        for word in self.words:
            if not (self.is_shown and _LEFT_OPEN.search(word.text)):
                found.append(word.text)
            elif found and _is_option(found[-1]) and not _is_option(word.text):
                found.pop()
        return found

    @cached_property
    def is_open(self) -> bool:
        """Whether it may pass options that are not seen: those of a variable."""
        return any(
            word.text.startswith(("$", "`")) and not (index and _is_option(self.words[index - 1].text))
            for index, word in enumerate(self.words)
        )

    def option_of(self, tool: str, name: str) -> str | None:
        """What it passes for an option of a tool, as 'accelerate launch', that starts the program; None:
        nothing."""
        _, is_there, rest = " ".join(self.before).rpartition(f"{tool} ")
        words = rest.split() if is_there else []
        for word, following in pairwise((*words, "")):
            option, has_value, value = word.partition("=")
            if option == f"--{name}":
                return value if has_value else following
        return None

    def uses(self, tool: str) -> bool:
        return f"{tool} " in f"{' '.join(self.before)} "


def _is_option(text: str) -> bool:
    return text.startswith("-") and not text[1:2].isdigit()


def launcher_with(path: str, pattern: re.Pattern[bytes]) -> str:
    """The path of a launcher beside a file, or in a folder above it in its project, that holds what a pattern
    matches; '' where there is none."""
    held = (item for folder in _folders(path) for item in _noted(folder).items())
    return next((launcher for launcher, data in held if pattern.search(data)), "")


def command_with(path: str, words: tuple[str, ...]) -> str:
    """The path of a launcher in the project of a file whose commands that name the file hold one of some
    words, or that is no page and holds one; '' where there is none."""
    pattern = re.compile(b"|".join(re.escape(word.encode()) + rb"(?![\w-])" for word in words))
    for folder in _folders(path):
        for launcher, data in _noted(folder).items():
            texts = [data]
            if launcher.endswith((".md", ".rst")):
                texts = [text for text in data.split(b"`") if os.path.basename(path).encode() in text]
            if any(map(pattern.search, texts)):
                return launcher
    return ""


def launches_of(path: str, *, on_pages: bool = False) -> list[Launch]:
    """The commands that start a file, in the shell scripts beside it and above it in its project.

    Args:
        on_pages: those in blocks of code of pages instead, without options that these leave to the reader.
    """
    patterns = _PAGES if on_pages else _SHELL
    name = os.path.basename(path)
    module = name.removesuffix(".py").encode()
    found = (
        (launcher, data.decode("utf-8", "replace"))
        for folder in _folders(path)
        for launcher, data in _noted(folder).items()
        if module in data and any(Path(launcher).match(pattern) for pattern in patterns)
    )
    return [
        replace(launch, is_shown=on_pages)
        for launcher, text in found
        for launch in _launches(launcher, _shown(text) if on_pages else text, path)
    ]


def _shown(page: str) -> str:
    """A page's code, in which `<path to data>` is one word."""
    return _SEVERAL_WORDS.sub(lambda match: match[0].replace(" ", "-"), code_of(page))


def passed_to(path: str, data: bytes) -> bytes:
    """What commands pass to a file that reads its command line, as text.

    Args:
        data: of the file.
    """
    if b"ArgumentParser(" not in data and b"TrlParser(" not in data:
        return b""
    return " ".join(word.text for launch in launches_of(path) for word in launch.words).encode()


def _launches(script: str, text: str, path: str) -> Iterator[Launch]:
    try:
        lines = list(commands_in(text))
    except UnclosedQuote:
        return
    for words in lines:
        at = next((index for index, word in enumerate(words) if _names(words, index, path)), None)
        if at is None:
            continue
        before = tuple(word.text for word in words[:at])
        found = Launch(script, before, tuple(command_at(words, at + 1)))
        runs = any(os.path.basename(word).startswith("python") for word in before)
        if runs or any(word.text.startswith("-") for word in found.words):
            yield found


def _names(words: list[Word], index: int, path: str) -> bool:
    """Whether a word is a file's path, as far as it is known, or the module that it is."""
    word = words[index].text
    if index and words[index - 1].text == "-m":
        word = f"{word.replace('.', '/')}.py"
    parts: list[str] = []
    for part in reversed(word.split("/")):
        if part in ("", ".", "..") or "$" in part:
            break
        parts.insert(0, part)
    return bool(parts) and list(Path(path).parts[-len(parts) :]) == parts


def forget() -> None:
    """Read files anew."""
    launchers_in.cache_clear()


def _noted(folder: Path) -> dict[str, bytes]:
    found = launchers_in(folder)
    note(found, "launchers", str(folder))
    return found


def _folders(path: str) -> Iterator[Path]:
    root = os.path.realpath(root_of(path))
    for folder in Path(path).resolve().parents if os.path.isfile(path) else ():
        yield folder
        if str(folder) == root:
            break


@lru_cache(maxsize=256)
def launchers_in(folder: Path) -> dict[str, bytes]:
    """What the launchers in a folder, and in the folders of scripts and configurations in it, hold."""
    inner = (folder, *folder.glob("*script*"), *folder.glob("*config*"))
    found = {}
    for path in (path for where in inner for name in _NAMES for path in sorted(where.glob(name))):
        # A pipe would be waited for.
        if path.is_file():
            try:
                found[str(path)] = path.read_bytes()
            except OSError:
                continue
    return found
