"""Runs a file as a program, and then the functions and classes that the program does not reach."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from tclint.source.run.entries import Entries
from tclint.source.run.files import File
from tclint.source.run.interpreter.core import MOST_EVENTS
from tclint.source.run.interpreter.machine import Machine
from tclint.source.run.library import Library, library
from tclint.source.run.project import ProjectFiles
from tclint.source.run.values import (
    NONE,
    ClassValue,
    FunctionValue,
    Place,
    Thing,
    Value,
    modules_in,
)
from tclint.source.syntax.tables import (
    Assignment,
    Attribute,
    Call,
    CallEvent,
    Expression,
    Function,
    Name,
    Return,
    dotted,
    parts_of,
)

_INHERITED = 12
"""A method inherited from a file that is not linted may take this fraction (1/12) of the program's events."""
_MOST_ALIKE = 3
"""The most modules of one class that are run although the program does not call them."""


def run(
    file: File,
    project: ProjectFiles,
    paths: Collection[str] = (),
    tokens: tuple[str, ...] | None = None,
    tables: Library | None = None,
    events: int = MOST_EVENTS,
    is_module: bool = False,
    watched: str = "",
    guests: Collection[str] = (),
) -> Machine:
    """Run a file as a program, then the functions and classes in it that the program does not reach.

    Args:
        paths: the linted files; their unreached functions are run as well if the program reads them.
        guests: linted files that count among `paths` only if the program runs functions of theirs that matter
            to rules.
        tokens: texts that rules look for; functions that lead to none of them are left out. None: all are
            run.
        events: the most events to record; functions that would exceed it are recorded as cut off.
        is_module: whether the file is part of a package and nothing is known to start it.
        watched: the qualified name of functions whose calls are recorded.
    """
    machine = Machine(project, tables or library(), events)
    machine.watched = watched
    if is_module:
        machine.linted = frozenset(paths)
    machine.run_file(file)
    if machine.launches and not any(machine.record.of("backward")):
        # The commands that are seen evaluate, or are of an earlier version: others start the training.
        machine = _anew(machine)
        machine.launches = None
        machine.run_file(file)
    if settled := machine.settle():
        machine, launches = _anew(machine), machine.launches
        machine.launches, machine.settled = launches, settled
        machine.run_file(file)
    _run_imported(machine, paths)
    entries = Entries(tokens, lambda inner, names: _is_run(machine, inner, names))
    machine.reached = {
        item.path
        for item in machine.frames
        if item is file
        or ((item.path in paths or item.path in guests) and _is_reached(machine, item, entries))
    }
    paths = {*paths, *machine.reached.intersection(guests)}
    done: list[File] = []
    # What runs may read more of the linted files.
    while read := [
        item for item in machine.frames if (item is file or item.path in paths) and item not in done
    ]:
        read.sort(key=lambda item: item is not file)
        done += read
        for item in read:
            entries.add(item)
        linted = frozenset(item.path for item in done)
        for item in read:
            _run_rest(machine, item, entries, linted)
    return machine


def _anew(machine: Machine) -> Machine:
    """A machine that has run nothing, for the same program."""
    made = Machine(machine.project, machine.library, machine.events)
    made.linted, made.watched = machine.linted, machine.watched
    return made


def _is_reached(machine: Machine, file: File, entries: Entries) -> bool:
    """Whether any function of a file that matters to rules has run, or none does matter."""
    entries.add(file)
    holding = entries.holding(file)
    return not holding or any(
        item.qualified_name in holding and (file.path, item.index) in machine.ran
        for item in file.tables.functions
    )


def _is_run(machine: Machine, file: File, names: frozenset[str]) -> bool:
    """Whether all functions of a file with these qualified names have run."""
    return all(
        (file.path, item.index) in machine.ran
        for item in file.tables.functions
        if item.qualified_name in names and item.kind == "function"
    )


def _run_imported(machine: Machine, paths: Collection[str]) -> None:
    """Run modules that files import without using a name of theirs, if they have effects or are linted.

    Imports in `__init__.py` are left out; they run when somebody uses the names.

    Args:
        paths: the files that are linted.
    """
    done: set[File] = set()
    while pending := [file for file in machine.frames if file not in done]:
        done.update(pending)
        for file in pending:
            if not file.is_library and os.path.basename(file.path) != "__init__.py":
                for found in machine.project.imported(file, paths, machine.library.own):
                    machine.run_module(found)


def functions_of(machine: Machine, project: ProjectFiles) -> frozenset[tuple[str, str]]:
    """The functions that a machine has run, as (path, qualified name)."""
    files = {file.path: file for file in project.read}
    return frozenset(
        (path, files[path].tables.functions[index].qualified_name)
        for path, index in machine.ran
        if path in files
    )


def result_of(file: File, project: ProjectFiles, name: str) -> tuple[Value, frozenset[tuple[str, str]]]:
    """Call a function or class of a file without arguments; return its result and the functions that ran. Any
    other name gives its value."""
    machine = Machine(project, library())
    machine.run_file(file, "")
    machine.frame = machine.frames[file]
    value: Value = machine.frames[file].names.get(name) or NONE
    for part in name.split(".")[1:] if "." in name else ():
        value = machine.attribute(value, part)
    machine.ran.clear()
    if isinstance(value, FunctionValue):
        value = machine.run_unknown(value)
    elif isinstance(value, ClassValue):
        value = machine.instantiate(value, [], {}, Call(Name(name), (), value.function.node_id))
    return value, functions_of(machine, project)


def _run_rest(machine: Machine, file: File, entries: Entries, linted: frozenset[str]) -> None:
    """Run the functions that the program does not call and the classes that it does not instantiate.

    Those that the file does not mention elsewhere go first, so that the others run with the arguments that
    these pass; and functions before classes, which they may instantiate.
    """
    read = _names_read(file.tables.functions)
    # Sorting keeps the order of the file.
    definitions = sorted(file.tables.functions, key=lambda function: function.kind == "class")
    for named in (False, True):
        for function in definitions:
            if function.parent != 0 or function.kind not in ("function", "class"):
                continue
            if (not named and function.name in read) or not entries.worth(file, function.name):
                continue
            value: Value | None = machine.frames[file].names.get(function.name)
            if isinstance(value, FunctionValue) and value.function is function:
                _run_once(machine, value)
            elif isinstance(value, Thing) and isinstance(
                inner := value.fields.get("function"), FunctionValue
            ):
                _run_once(machine, inner)
            elif isinstance(value, ClassValue) and value.function is function:
                _run_modules(machine, file, entries)
                _run_class(machine, file, value, read, entries, linted)
    _run_modules(machine, file, entries)


def _run_once(machine: Machine, value: FunctionValue, parts: int = 2) -> None:
    if (value.file.path, value.function.index) in machine.ran:
        return
    if len(machine.record.events) < machine.events:
        machine.run_unknown(value, parts=parts)
    else:
        machine.cut(value)


def _run_modules(machine: Machine, file: File, entries: Entries) -> None:
    """Call the modules that a file makes but the program does not call, except parts of other modules."""
    for event in machine.record.events[machine.looked_at :]:
        thing = event.result
        if event.kind == "forward" and isinstance(event.subject, Thing):
            machine.called.add(event.subject)
        elif event.kind == "make" and isinstance(thing, Thing):
            if thing.cls is not None:
                machine.objects.setdefault(thing.cls, []).append(thing)
            if thing.kind == "module":
                machine.modules.append((event, thing))
                machine.called.update(part for part in modules_in(thing) if part is not thing)
    machine.looked_at = len(machine.record.events)
    waiting, machine.modules = machine.modules, []
    for event, thing in waiting:
        if thing in machine.called:
            continue
        kind = thing.cls or thing.name
        if event.place.file is not file:
            machine.modules.append((event, thing))
        elif thing.cls is not None and not entries.concerns(thing.cls.file, thing.cls.function.name):
            continue
        elif machine.runs_parts(thing) and machine.run_alone_of.get(kind, 0) < _MOST_ALIKE:
            machine.run_alone_of[kind] = machine.run_alone_of.get(kind, 0) + 1
            machine.run_alone(thing, machine.frames[file])


def _run_class(
    machine: Machine,
    file: File,
    value: ClassValue,
    read: frozenset[str],
    entries: Entries,
    linted: frozenset[str],
) -> None:
    attributes = {
        name: item
        for owner in reversed(list(value.lineage()))
        if not owner.file.is_library
        for name, item in owner.namespace.items()
    }
    methods = [
        inner
        for item in attributes.values()
        for inner in [item.fields.get("function") if isinstance(item, Thing) else item]
        if isinstance(inner, FunctionValue)
    ]
    concerning = {
        item.function.name
        for item in methods
        if item.file.path in linted and entries.method_concerns(item, _names_read(_parts_of(item)))
    }
    members = [
        item
        for item in methods
        if (item.file.path, item.function.index) not in machine.ran
        # A method inherited from another file matters only if it calls methods of the linted files.
        and (item.file.path in linted or not concerning.isdisjoint(_names_read(_parts_of(item))))
    ]
    if not members:
        return
    if len(machine.record.events) >= machine.events:
        for item in members:
            machine.cut(item)
        return
    machine.frame = machine.frames[file]
    machine.node_id = value.function.node_id
    # Use the only object that the program makes of the class, or else make one.
    made_before = machine.objects.get(value, ())
    constructor = value.find("__init__")
    if len(made_before) == 1:
        made = made_before[0]
    elif isinstance(constructor, FunctionValue):
        made = Thing(machine.kind_of_class(value), value.function.name, cls=value)
        machine.run_unknown(constructor.bound_to(made))
    else:
        call = Call(Name(value.function.name), (), value.function.node_id)
        instance = machine.instantiate(value, [], {}, call)
        assert isinstance(instance, Thing)
        made = instance
    if made.kind == "module" and machine.runs_parts(made) and not made_before:
        machine.run_alone(made, machine.frames[file])
    alone = value.find("__alone__")
    if isinstance(alone, FunctionValue):
        # The class belongs to a framework; `__alone__` calls its methods in the framework's order.
        machine.frame = machine.frames[file]
        machine.run_unknown(alone.bound_to(made), (Place(file, file.tables.module, value.function.node_id),))
    for named in (False, True):
        for item in members:
            if named or item.function.name not in read:
                machine.frame = machine.frames[file]
                _run_once(machine, item.bound_to(made), 2 if item.file.path in linted else _INHERITED)


def _parts_of(value: FunctionValue) -> list[Function]:
    """A function and the functions that are defined in it."""
    found = [value.function]
    for item in value.file.tables.functions:
        if any(item.parent == outer.index for outer in found):
            found.append(item)
    return found


def _names_read(functions: Iterable[Function]) -> frozenset[str]:
    """The names and attributes that functions read."""
    found: set[str] = set()
    for function in functions:
        for event in function.events:
            pending: list[Expression] = []
            if isinstance(event, CallEvent):
                pending = [event.call.function, *(item.value for item in event.call.arguments)]
            elif isinstance(event, Assignment | Return):
                pending = [event.value]
            while pending:
                part = pending.pop()
                if isinstance(part, Name):
                    found.update(part.dotted.split("."))
                elif isinstance(part, Attribute):
                    found.add(part.name)
                    pending.append(part.value)
                elif not isinstance(part, Call):
                    pending.extend(parts_of(part))
        for base in function.bases:
            found.update(dotted(base).split("."))
    return frozenset(found)
