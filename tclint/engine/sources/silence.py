"""Explains why a source rule reports nothing on a line: its decisions and the program's events there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.core.finding import Finding, Location
from tclint.core.rule import CRASH_CODE, UNREADABLE_CODE, apply_rule
from tclint.core.text import listed
from tclint.engine.rules.registry import Selection
from tclint.engine.sources.lint import lint
from tclint.engine.sources.program import SourceProgram, for_deep_code
from tclint.engine.suppressions import parse_suppressions
from tclint.source.context import SourceContext
from tclint.source.project.versions import why_not_of_project
from tclint.source.run.values import Event
from tclint.source.source_rule import SourceRule
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
    """The findings of a rule on a line, or the reasons for its silence, as a check of the file finds them.

    Raises:
        TargetError: the file cannot be read, is not Python, or tclint fails on it.
    """
    given, path = path, os.path.abspath(path)
    settings = settings.in_phase()
    selection = Selection(settings)
    selected = {item.code: item for item in selection.rules if isinstance(item, SourceRule)}
    programs: list[tuple[SourceContext, Sequence[SourceRule]]] = []

    def watch(program: SourceProgram, asked: Sequence[SourceRule]) -> None:
        context = program.context
        if context is None or path not in program.linted:
            return
        # As in a check, a program that runs the file counts before one that only reads it.
        if not programs or path not in context.run.unreached:
            programs[:] = [(context, asked)]

    # What an earlier run found says nothing of what happens on a line.
    result = lint(
        [given], list({**selected, rule.code: rule}.values()), replace(settings, cache=False), watch=watch
    )
    problems = [
        *(message for _, message, _ in result.errors),
        *(f"{given} was not read: {item.reason}." for item in result.skipped if not item.is_part),
        *(item.message for item in result.findings if item.code == UNREADABLE_CODE or _is_crash(item, rule)),
    ]
    if problems:
        raise TargetError(problems[0])
    findings = [item for item in result.findings if item.code == rule.code and _shows(item, path, line)]
    reasons = [
        why
        for item in result.too_new
        if item.code == rule.code
        and _shows(item, path, line)
        and (why := why_not_of_project(item)) is not None
    ]
    if not programs:
        return Answer((), tuple(_not_asked(rule, settings)), (), path)
    context, asked = programs[0]
    if not any(item.code == rule.code for item in asked):
        reasons += _not_asked(rule, settings)
    else:
        alone = replace(context, silences=[])
        with for_deep_code():
            apply_rule(rule, alone, Location(path, line))
        reasons += [why for event, why in alone.silences if _is_on(context, event, path, line)]
    happens = [
        told(event)
        for event in context.record.events
        if _is_on(context, event, path, line) and not any(round_.number for round_ in event.loops)
    ]
    comments = parse_suppressions(result.marked.get(path, ""))
    reported = []
    for item in findings:
        if rule.code not in selected or not selection.allows(item):
            reasons.append("the settings leave it out for this file")
        elif any(comment.matches(item) for comment in comments):
            reasons.append("a comment silences it")
        else:
            reported.append(item)
    return Answer(tuple(reported), tuple(dict.fromkeys(reasons)), tuple(dict.fromkeys(happens)), context.path)


def _is_crash(finding: Finding, rule: SourceRule) -> bool:
    return finding.code == CRASH_CODE and finding.identity == rule.code


def _not_asked(rule: SourceRule, settings: Settings) -> Iterator[str]:
    """Why a check does not ask the rule about the file."""
    if not rule.applies(settings):
        yield "it concerns other settings, such as other GPUs"
    else:
        words = listed([repr(word) for word in rule.triggers], 6)
        yield f"nothing in the file is what it looks for, such as {words}"


def _shows(finding: Finding, path: str, line: int) -> bool:
    """Whether a finding is about a line, itself or as one of several places."""
    also = (item.location for item in finding.related if item.is_alike)
    return any(place.path == path and place.line == line for place in (finding.location, *also))


def _is_on(context: SourceContext, event: Event, path: str, line: int) -> bool:
    if all(place.file.is_library for place in event.places):
        return False  # a framework's event without a call in the program
    at = context.at(event)
    return at.path == path and at.line <= line <= (at.end_line or at.line)
