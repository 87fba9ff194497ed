"""The arguments that a project's own programs give a model's class or builder, as reading them tells."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tclint.config.settings import Settings
from tclint.core.examples import README, python_blocks
from tclint.engine.script.argument_text import argument_texts
from tclint.engine.script.models import file_of, files_of_project
from tclint.graph.ops import Site
from tclint.source.project.scripts import Scripts, root_of
from tclint.source.project.test_paths import is_test_path
from tclint.source.run.files import File
from tclint.source.run.program import Program
from tclint.source.run.values import Event, FunctionValue, Thing, options_of
from tclint.source.syntax.parse import NotPython, parse_tree
from tclint.source.syntax.tables import Function, Literal, Parameter
from tclint.tracing.values.sites import SiteFinder

_MOST_PROGRAMS = 12
"""The most files of a project that are read for the calls of one class."""
_BYTES_PER_EVENT = 50
"""How much of the programs is parsed per event that is followed; either takes about as long."""


@dataclass(frozen=True)
class Construction:
    """How a program calls a class or a function that builds a model."""

    arguments: Mapping[str, str]
    """What is known of its arguments, as `--arg` takes them."""
    sizes: Mapping[str, str]
    """The arguments that are or hold sizes of data, with `SIZE` for each."""
    site: Site
    files: tuple[str, ...]
    """The paths of those that the program reads, of its configuration and of its commands."""
    is_own: bool = True
    """Whether it calls that class or function, and not another file's of the same name and parameters."""
    is_trained: bool = False
    """Whether the program trains."""
    untold: tuple[str, ...] = ()
    """Arguments that it gives, whose values reading does not tell and whose defaults are numbers."""
    trained_at: str = ""
    """Where another program, which trains, makes it with arguments that reading does not tell."""
    otherwise: str = ""
    """Where another call, of equal standing, makes it with other arguments."""
    chosen_from: str = ""
    """What it is the first of, if others may give other arguments: 'commands (README.md)'."""
    command: str = ""
    """The one with which the program was run up to there, if it was: 'train.py --depth 18'."""
    missing: tuple[str, ...] = ()
    """Files that a program which was run did not find."""
    inputs: tuple[str, ...] = ()
    """Inputs of the model's first call, as `--input` takes them, if the program was run up to that call."""

    @property
    def is_of_test(self) -> bool:
        """Whether a test makes it, which may be small."""
        return is_test_path(self.site.path)

    @property
    def place(self) -> str:
        return f"{os.path.relpath(self.site.path)}:{self.site.line}"


def constructions(
    target: str,
    needed: Collection[str],
    settings: Settings,
    *,
    of_training: bool = False,
    unread: set[str] | None = None,
) -> list[Construction]:
    """The calls of a target's class or function in its project, those first that state most of the arguments
    it needs.

    Among equals those of the programs that use the model come first, then its own file's example, which may
    be small, and last those of another file's class that takes the same. Empty if no file of the user's
    defines it, or no call states any argument.

    Args:
        of_training: whether to read only programs that may train and lead to the target's file, and no tests.
        unread: receives the files that are left out because the search is long.
    """
    where, _, name = target.rpartition(":")
    file = file_of(where, files_of_project(settings))
    own = [] if file is None else [item for item in file.tables.functions if item.qualified_name == name]
    if file is None or all(item.kind == "function" and not item.parameters for item in own):
        return []  # there is none, or no call can give it anything
    if not SiteFinder().is_user_file(file.path):  # the users of a library are not in its own package
        return []
    found: dict[tuple[Any, ...], Construction] = {}
    call = re.compile(rf"\b{re.escape(name)}\b")
    readme = _readme(file.path, call)
    unread = set() if unread is None else unread
    most_bytes = settings.program_events * _BYTES_PER_EVENT
    files = files_of_project(settings, readme, has_pages=True, most_bytes=most_bytes, unread=unread)
    files.keep(file.path, file)
    paths = programs_naming(file.path, call, readme)
    if of_training:
        training = Scripts.around(file.path).training_with(file.path)
        paths = [path for path in paths if (path in training and not is_test_path(path)) or path in readme]
    done: set[str] = set()
    events_left = settings.program_events
    for path in paths:
        if path in done:
            continue
        start = files.file(path) if events_left > 0 else None
        if start is None:
            unread |= {path} if events_left <= 0 else set()
            continue
        program = Program.of(start, files, paths, (name,), events_left, watched=name)
        done |= program.within
        events_left -= len(program.record.events)
        read = (*(item.path for item in program.files if not item.is_library), *files.others)
        is_trained = bool(program.record.of("backward"))
        for event in program.record.of("make", "enter"):
            called = _called(event, file, name)
            if called is None:
                continue
            parameters, is_own = called
            texts, sizes, chosen_from = _arguments(event, parameters, file.path)
            if event.arguments:
                untold = _untold(event, parameters, {*texts, *sizes})
                one = Construction(
                    texts, sizes, _site(event), read, is_own, is_trained, untold, chosen_from=chosen_from
                )
                key = (not is_own, *sorted(texts.items()), *sorted(sizes.items()))
                if key not in found or (is_trained and not found[key].is_trained):
                    found[key] = one  # an example does not hide the program that trains the same
        complete = [one for one in found.values() if set(needed) <= set(one.arguments)]
        if any(one.is_own and not _is_in(one, file) for one in complete):
            break

    def known(one: Construction) -> tuple[int, int, bool, bool, bool, int]:
        wanted = set(needed)
        given = len(wanted & set(one.arguments)), len(wanted & set(one.sizes))
        return *given, one.is_own, one.is_trained, not _is_in(one, file), len(one.arguments)

    first, *others = [*sorted(found.values(), key=known, reverse=True), None]
    if first is not None and not first.is_trained and set(needed) <= set(first.arguments):
        # A number of classes changes little, and a configuration everything.
        whole = {name for name in needed if not first.arguments[name].isdigit()}
        trained = next((one for one in others if one and one.is_trained and whole - {*one.arguments}), None)
        first = first if trained is None else replace(first, trained_at=trained.place)
        given = first.arguments
        for rival in found.values() if trained is None else ():
            if known(rival) == known(first) and any(rival.arguments[name] != given[name] for name in whole):
                first = replace(first, otherwise=rival.place)
                break
    return [one for one in (first, *others) if one is not None]


def is_made(target: str, needed: Collection[str], settings: Settings) -> bool:
    """Whether a target's project states what it needs, but for sizes of data, which can be guessed."""
    found = constructions(target, needed, settings)[:1]
    return any(set(needed) <= one.arguments.keys() | one.sizes.keys() for one in found)


def _is_in(found: Construction, file: File) -> bool:
    return os.path.realpath(found.site.path) == os.path.realpath(file.path)


def programs_naming(path: str, call: re.Pattern[str], readme: Iterable[str] = ()) -> list[str]:
    """The files whose programs may make the class, best first."""
    scripts = Scripts.around(path)
    naming = re.compile(call.pattern.encode())
    others = [other for other, data in scripts.files.items() if naming.search(data)]
    # Those come first whose program trains: others may make another branch of the model, or a small one.
    others.sort(
        key=lambda other: (is_test_path(other), scripts.place_of(scripts.of(other)), len(other), other)
    )
    tests = [other for other in others if is_test_path(other)]
    own = others[: len(others) - len(tests)]
    # What makes the model may be a part of a program, whose options another file of it reads.
    best = [path, scripts.of(path), *(file for other in own for file in (scripts.of(other), other))]
    return [*dict.fromkeys([*[*dict.fromkeys(best)][: _MOST_PROGRAMS - 1], *readme, *tests])][:_MOST_PROGRAMS]


def _readme(path: str, call: re.Pattern[str]) -> dict[str, bytes]:
    """The nearest README, as a program of its examples that name a class, at their lines."""
    root, folder = root_of(path), os.path.dirname(path)
    while not os.path.isfile(readme := os.path.join(folder, README)):
        if folder == root or folder == os.path.dirname(folder):
            return {}
        folder = os.path.dirname(folder)
    lines: list[str] = []
    try:
        with open(readme, encoding="utf-8", errors="replace") as file:
            text = file.read()
        for before, code in python_blocks(text):
            with contextlib.suppress(NotPython):
                if call.search(code) and parse_tree(code):
                    lines += [""] * (before - len(lines)) + code.splitlines()
    except OSError:
        return {}
    return {readme: "\n".join([*lines, ""]).encode()} if lines else {}


def _called(event: Event, file: File, name: str) -> tuple[list[Parameter], bool] | None:
    """The parameters of what an event calls, and whether that is the file's class or function of a name; it
    may also be another file's that takes the same, as where an option chooses the file."""
    found = None
    for option, _ in options_of(event.result) if event.result is not None else ():
        cls = option.cls if isinstance(option, Thing) else None
        called = option if isinstance(option, FunctionValue) else cls
        if called is None or called.function.qualified_name != name:
            continue
        function = called if cls is None else cls.find("__init__")
        given = function.function if isinstance(function, FunctionValue) else None
        parameters = _taken(given)[0 if cls is None else 1 :]
        if os.path.realpath(called.file.path) == os.path.realpath(file.path):
            return parameters, True
        own = next((one for one in file.tables.functions if one.qualified_name == f"{name}.__init__"), None)
        if cls is not None and parameters and _names(parameters) == _names(_taken(own)[1:]):
            found = parameters, False
    return found


def _taken(function: Function | None) -> list[Parameter]:
    return [] if function is None else [item for item in function.parameters if not item.star]


def _names(parameters: Iterable[Parameter]) -> list[str]:
    return [item.name for item in parameters]


def _untold(event: Event, parameters: Sequence[Parameter], told: Collection[str]) -> tuple[str, ...]:
    """The arguments of a call that are not told, of those that are a number by default."""
    given = {
        parameters[int(key)].name if key.isdigit() else key
        for key in event.arguments
        if _fits(key, parameters)
    }
    numbers = (
        item.name
        for item in parameters
        if isinstance(item.default, Literal) and type(item.default.value) is int
    )
    return tuple(name for name in numbers if name in given and name not in told)


def _fits(key: str, parameters: Sequence[Parameter]) -> bool:
    return not key.isdigit() or int(key) < len(parameters)


def _arguments(
    event: Event, parameters: Sequence[Parameter], home: str
) -> tuple[dict[str, str], dict[str, str], str]:
    """The values that are known, by argument; the arguments that are or hold sizes of data; and the file with
    the command that decides one of them, if others say something else."""
    found: dict[str, str] = {}
    sizes: dict[str, str] = {}
    chosen_from = ""
    for key, value in event.arguments.items():
        name = parameters[int(key)].name if key.isdigit() and int(key) < len(parameters) else key
        made = argument_texts(value, home)
        if name.isidentifier() and (made.told or made.sized) is not None:
            found |= {name: made.told} if made.told is not None else {}
            sizes |= {name: made.sized} if made.sized is not None else {}
            chosen_from = chosen_from or (
                f"commands ({os.path.relpath(made.command)})" if made.command else ""
            )
    return found, sizes, chosen_from


def _site(event: Event) -> Site:
    file = event.place.file
    return Site(file.path, file.spans()[event.place.node_id].line)
