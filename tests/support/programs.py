"""Runs small programs with abstract values, for tests of the interpreter."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from tclint.source.recipes.reading import settings_of
from tclint.source.run.files import File
from tclint.source.run.interpreter.core import MOST_EVENTS
from tclint.source.run.program import Program
from tclint.source.run.project import ProjectFiles
from tclint.source.run.values import Constant, Event, Symbol, Thing, Union, Value
from tclint.source.syntax.parse import NotPython, Parsed, decode, parse


def program_of(
    text: str, folder: Path | None = None, name: str = "program.py", events: int = MOST_EVENTS
) -> Program:
    """A program that is run, with at most so many events; with a folder, one that imports the files in it."""
    text = dedent(text)
    parsed = parse(text)
    files = ProjectFiles(_parsed, settings=settings_of)
    path = str((folder or Path("/nowhere")) / name)
    file = File(path, parsed.tables, lambda: parsed.spans, lambda: parsed.lines)
    files.keep(path, file)
    return Program.of(file, files, events=events)


def _parsed(_path: str, data: bytes) -> Parsed | None:
    try:
        return parse(decode(data))
    except NotPython:
        return None


def events(text: str, *kinds: str, folder: Path | None = None) -> list[Event]:
    """What a program does, of these kinds."""
    return list(program_of(text, folder).record.of(*kinds))


def probed(text: str, folder: Path | None = None) -> list[str]:
    """What the program's calls of `probe(value)` get, as text, each once."""
    return _probed(program_of(text, folder))


def probed_in(folder: Path, name: str, text: str) -> list[str]:
    """The same of a script that stands in a folder."""
    (folder / name).write_text(text, "utf-8")
    return _probed(program_of(text, folder, name))


def _probed(program: Program) -> list[str]:
    found = [
        shown(next(iter(event.arguments.values())))
        for event in program.record.events
        if event.name == "probe" and event.arguments
    ]
    return list(dict.fromkeys(found))


def shown(value: Value) -> str:
    """A value as text: constants as they are, things by their kind, what is not known as '?'."""
    match value:
        case Constant():
            return repr(value.value)
        case Symbol():
            return value.name
        case Union():
            return " | ".join(sorted((shown(option.value) for option in value.options), key=_unknown_last))
        case Thing() if value.kind in ("list", "tuple"):
            items = [shown(item) for key, item in value.fields.items() if isinstance(key, tuple)]
            rest = value.fields.get("[*]")
            return f"{value.kind}({', '.join([*items, *([f'{shown(rest)}...'] if rest else [])])})"
        case Thing():
            return value.kind or (value.cls.function.name if value.cls is not None else "?")
    return repr(value)


def _unknown_last(text: str) -> tuple[bool, str]:
    return text == "?", text


def lines(found: list[Event]) -> list[int]:
    """The lines on which things happen."""
    return [event.place.file.spans()[event.place.node_id].line for event in found]
