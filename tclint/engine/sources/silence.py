"""Explains why a source rule reports nothing on a line: its decisions and the program's events there."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.core.finding import Finding
from tclint.engine.sources.program import SourceProgram, for_deep_code, scripts_of
from tclint.source.context import SourceContext
from tclint.source.project.versions import of_project, why_not_of_project
from tclint.source.run.values import Event
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.notebooks import Notebook, is_notebook, read_notebook
from tclint.source.syntax.parse import NotPython, parse
from tclint.source.wording import told


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for a rule and a line."""

    findings: tuple[Finding, ...]
    """The findings on the line."""
    reasons: tuple[str, ...]
    """The reasons for not reporting events that the rule looked at there."""
    happens: tuple[str, ...]
    """The events on the line, in words; empty if nothing there was run."""
    root: str
    """The file that starts the program."""


def why(rule: SourceRule, path: str, line: int, settings: Settings) -> Answer:
    """The findings of a rule on a line, or the reasons for its silence.

    Raises:
        TargetError: the file cannot be read or is not Python.
    """
    path = os.path.abspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read()
        notebook = read_notebook(data) if is_notebook(path) else None
    except OSError as error:
        raise TargetError(f"{path} cannot be read ({error.strerror or error}).") from None
    except NotPython as error:
        raise TargetError(f"{path} cannot be read: {error}.") from None
    program_data = data if notebook is None else notebook.text.encode()
    with for_deep_code():
        root, program = _program_of(path, notebook, settings, program_data, rule.triggers)
        if program.context is None:
            raise TargetError(f"{path} cannot be linted: {program.unreadable.get(path)}.")
        findings = [item for item in program.findings([rule]) if item.location.path == path]
        context = program.context
        reasons = [why for event, why in context.silences if _is_on(context, event, path, line)]
        reasons += [
            why
            for item in findings
            if item.location.line == line and (why := why_not_of_project(item)) is not None
        ]
        happens = [
            told(event)
            for event in context.record.events
            if _is_on(context, event, path, line) and not any(round_.number for round_ in event.loops)
        ]
    return Answer(
        tuple(item for item in findings if item.location.line == line and of_project(item) is not None),
        tuple(dict.fromkeys(reasons)),
        tuple(dict.fromkeys(happens)),
        root,
    )


def _program_of(
    path: str, notebook: Notebook | None, settings: Settings, data: bytes, tokens: tuple[str, ...]
) -> tuple[str, SourceProgram]:
    """The program that a file is part of, and the file that starts it."""
    root, *others = scripts_of(path, notebook)
    first = SourceProgram.of(root, [path], settings, parse, {path: data}, tokens)
    if first.context is not None and path in first.context.run.unreached:
        for other in others:
            program = SourceProgram.of(other, [], settings, parse, {path: data}, tokens, guests=[path])
            if path in program.linted:
                return other, program
    return root, first


def _is_on(context: SourceContext, event: Event, path: str, line: int) -> bool:
    if all(place.file.is_library for place in event.places):
        return False  # a framework's event without a call in the program
    at = context.at(event)
    return at.path == path and at.line <= line <= (at.end_line or at.line)
