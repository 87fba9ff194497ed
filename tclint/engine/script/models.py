"""Matches training scripts with the models of a run, by the classes and functions that both use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tclint.config.settings import Settings
from tclint.core.target import LIBRARIES
from tclint.source.recipes.reading import settings_of
from tclint.source.run.files import File
from tclint.source.run.program import Program
from tclint.source.run.programs import result_of
from tclint.source.run.project import ProjectFiles
from tclint.source.run.values import Constant, Event, Thing, Value, options_of
from tclint.source.syntax.cache import TablesCache
from tclint.source.syntax.parse import NotPython, Parsed, decode, parse

Made: TypeAlias = tuple[str, str]
"""A class or function that is made or run: (file, name) in the project; else ('', full name) or ('timm',
'resnet50')."""


def made_by_program(program: Program) -> set[Made]:
    """The project's functions and classes, and the libraries' models, that a program makes or runs."""
    found: set[Made] = set()
    for path, name in program.ran:
        found.add((os.path.realpath(path), name))
    for event in program.record.of("make"):
        found.update(_made(event, event.result))
    return found


def models_of(program: Program) -> list[str]:
    """The sorted names of the project's module classes that a program makes, except losses."""
    return sorted(
        {
            thing.cls.function.name
            for event in program.record.of("make")
            for thing in program.facts.kinds(event.result, "module")
            if thing.cls is not None and _is_trained(thing)
        }
    )


def _is_trained(thing: Thing) -> bool:
    """Whether a module has layers of its own, unlike a loss."""
    return any(
        isinstance(item, Thing) and item.kind in ("module", "tensor") for item in thing.fields.values()
    )


def made_by_target(target: str, files: ProjectFiles) -> set[Made]:
    """The target itself and what it returns; empty if the file does not show it."""
    where, _, name = target.rpartition(":")
    if where in LIBRARIES:
        return {(where, name)}
    file = file_of(where, files)
    if file is None:
        return {("", f"{where}.{name}")}
    value, ran = result_of(file, files, name)
    found: set[Made] = {(os.path.realpath(path), inner) for path, inner in ran}
    for thing in _things(value):
        if thing.made is not None:
            found.update(_made(thing.made, thing))
    return found


def file_of(where: str, files: ProjectFiles) -> File | None:
    """The file of a target: 'path/model.py', or a module by its full name."""
    if where.endswith(".py"):
        return files.file(os.path.abspath(where))
    return files.module_from(os.path.join(os.getcwd(), "<target>"), where)


def _things(value: Value) -> Iterator[Thing]:
    for option, _ in options_of(value):
        if isinstance(option, Thing):
            yield option
            if option.kind in ("tuple", "list", "dict"):
                for key, item in option.fields.items():
                    if isinstance(key, tuple):
                        yield from _things(item)


def _made(event: Event, value: Value | None) -> Iterator[Made]:
    for option, _ in options_of(value) if value is not None else ():
        cls = option.cls if isinstance(option, Thing) else None
        if cls is not None and not cls.file.is_library:
            yield os.path.realpath(cls.file.path), cls.function.qualified_name
    text = event.first.value if isinstance(event.first, Constant) else None
    if isinstance(text, str):
        if event.name.endswith("create_model"):
            yield "timm", text
        elif event.name.endswith(".from_pretrained"):
            yield "hf", text
    if not event.name.startswith("torch."):
        yield "", event.name


def files_of_project(
    settings: Settings,
    given: Mapping[str, bytes] | None = None,
    *,
    has_pages: bool = False,
    most_bytes: float = math.inf,
    unread: set[str] | None = None,
) -> ProjectFiles:
    """The files of a project, parsed as they are read; what is no Python is left out.

    Args:
        given: path -> bytes to use instead of those on the disk.
        has_pages: whether the commands that pages show start programs, where no shell script does.
        most_bytes: the most to parse; cached tables count too, so that the result is the same without them.
        unread: receives the files that are left out because of it.
    """
    kept = TablesCache.of(settings)
    parse_text = parse if kept is None else kept.parse
    left = most_bytes

    def parsed(path: str, data: bytes) -> Parsed | None:
        nonlocal left
        if len(data) > left:
            if unread is not None:
                unread.add(path)
            return None
        left -= len(data)
        try:
            return parse_text(decode(data))
        except NotPython:
            return None

    return ProjectFiles(parsed, given, settings=settings_of, has_pages=has_pages)
