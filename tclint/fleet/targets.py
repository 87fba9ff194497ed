"""Targets in bulk: patterns such as 'timm:resnet*', files with a target and its options per line, shards."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tclint.config.declared_models import ENTRY_SETTINGS
from tclint.config.keywords import options_in
from tclint.config.settings import DeclaredModel, Precision, Settings
from tclint.core.errors import UsageError, closest
from tclint.core.target import LIBRARIES, is_model_target
from tclint.engine.declared_models import settings_of
from tclint.engine.model_listing.candidates import list_models
from tclint.engine.script.construction import is_made
from tclint.tracing import library_models

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Task:
    """One target under its own settings."""

    name: str
    """The target with the options of its line: what its results are filed under."""
    target: str
    settings: Settings
    of_run: Settings = field(default_factory=Settings)
    """What lines do not set: the settings that the results are headed by."""


def tasks_of(
    targets: Sequence[str],
    files: Sequence[str],
    settings: Settings,
    shard: str = "",
    precisions: Sequence[Precision] = (),
) -> tuple[Task, ...]:
    """All tasks, in the order of the targets and the lines, each once.

    Args:
        targets: models, or patterns of them.
        files: with a target or a pattern per line, and options that hold for it alone.
        settings: what lines do not set.
        shard: '2/4' for every fourth task from the second on; '' for all.
        precisions: where there are several, every line that names none is a task in each of them.

    Raises:
        UsageError: a line, a pattern or the shard is wrong.
    """
    lines: list[tuple[str, str, tuple[str, ...]]] = [(target, "", ()) for target in targets]
    for file in files:
        lines += _lines(file)
    known: dict[str, list[str]] = {}
    tasks: dict[str, Task] = {}
    for text, place, options in lines:
        if text not in known:
            known[text] = _expanded(text, place)
        values = dict(_values(options, place))
        variants = [(options, values)]
        if len(precisions) > 1 and "precision" not in values:
            variants = [
                ((*options, "--precision", precision), {**values, "precision": precision})
                for precision in precisions
            ]
        for target in known[text]:
            for words, given in variants:
                name = " ".join((target, *map(shlex.quote, words)))
                own = settings_of(DeclaredModel(target, tuple(given.items())), settings)
                tasks.setdefault(name, Task(name, target, own, settings))
    if not tasks:
        raise UsageError("There are no targets: name models, patterns as 'timm:resnet*', or --targets FILE.")
    return _shard(tuple(tasks.values()), shard)


def _shard(tasks: tuple[Task, ...], shard: str) -> tuple[Task, ...]:
    if not shard:
        return tasks
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard expects a part of a number of parts such as 2/4, not {shard!r}.")
    return tasks[int(match[1]) - 1 :: int(match[2])]


# ---------------------------------------------------------------- files of targets


def _lines(file: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Target, where it stands, and the words behind it, of every line."""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")  # as Windows editors save it
    except OSError as error:
        raise UsageError(f"Cannot read the targets in {file!r}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"Cannot read the targets in {file!r}: it is not UTF-8 text.") from None
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise UsageError(f"Line {number} of {file} cannot be read: {error}.") from None
        if words:
            found.append((words[0], f"line {number} of {file}", tuple(words[1:])))
    return found


def _values(words: Sequence[str], place: str) -> Iterator[tuple[str, object]]:
    """Fields of Settings that '--arg width=64 --gpu=a100 --compiled' sets."""
    try:
        names, options = options_in(words)
    except ValueError as error:
        raise UsageError(f"{place} cannot be read: {error}.") from None
    for word, text in {**dict.fromkeys(names), **{f"--{key}": text for key, text in options.items()}}.items():
        setting = ENTRY_SETTINGS.get(word.removeprefix("--"))
        if word in names or setting is None:
            keys = tuple(f"--{name}" for name in ENTRY_SETTINGS)
            hint = closest(word, keys) or f" Its options are {', '.join(keys)}."
            raise UsageError(f"{place} has {word!r}, which a target cannot set.{hint}")
        try:
            yield setting.field, setting.kind.parse(text)
        except ValueError as error:
            raise UsageError(f"{place} has {word} {text!r}: it {error}.") from None


# ---------------------------------------------------------------- patterns


def _expanded(text: str, place: str) -> list[str]:
    """The targets that a pattern names; a target names itself."""
    container, colon, pattern = text.rpartition(":")
    if _WILD.search(container) and not os.path.exists(container):
        raise UsageError(f"{text!r} has a pattern in front of the colon, where only names can be.")
    if not colon or not _WILD.search(pattern):
        if not is_model_target(text):
            where = f" in {place}" if place else ""
            raise UsageError(
                f"{text!r}{where} is not a model: write 'path/file.py:callable', 'package.module:callable', "
                "'timm:resnet50' or a pattern such as 'timm:resnet*'."
            )
        return [text]
    names = library_models(container) if container in LIBRARIES else _callables(container, text)
    found = [f"{container}:{name}" for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise UsageError(f"{text!r} names none of the {len(names)} models of {container}.")
    return found


def _callables(container: str, text: str) -> list[str]:
    """The models that `tclint models` lists in a file or module; of those that need arguments, the ones whose
    project states them."""
    file = container if container.endswith(".py") else file_of_module(container)
    if file is None or not os.path.isfile(file):
        raise UsageError(f"{text!r} is not a file or module whose models can be listed.")
    found, unread = list_models([file])
    if unread:
        raise UsageError(f"{file} cannot be read as Python 3, so {text!r} names nothing.")
    return [
        candidate.name
        for candidate in found
        if candidate.certain
        and (not candidate.needs or is_made(candidate.target, candidate.needs, Settings()))
    ]


def file_of_module(module: str) -> str | None:
    """Where the module's code is, found without importing it."""
    if module in LIBRARIES:
        return None
    parts = os.path.join(*module.split("."))
    folders: Iterable[str] = (".", *(folder for folder in sys.path if folder))
    for folder in folders:
        for file in (f"{parts}.py", os.path.join(parts, "__init__.py")):
            path = os.path.join(folder, file)
            if os.path.isfile(path):
                return path
    return None
