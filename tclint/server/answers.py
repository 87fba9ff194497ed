"""What the protocol calls findings, fixes and rule pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lsprotocol import types

from tclint.core.errors import UsageError
from tclint.core.finding import Edit, Finding, Level
from tclint.core.markup import shortened
from tclint.engine.ignores import can_be_ignored, ignoring
from tclint.engine.rules.registry import find_rule
from tclint.report.catalogue import engine_page
from tclint.report.rule_text import rule_markdown
from tclint.report.words import effect_text, models_text
from tclint.server.text import Text

SOURCE = "tclint"
FIX_ALL = "source.fixAll.tclint"
TITLE_CHARACTERS = 100

SEVERITIES: dict[Level, types.DiagnosticSeverity] = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
_CODE = re.compile(r"\b[A-Z]{2,6}\d{3}\b")


def diagnostic(finding: Finding, text: Text) -> types.Diagnostic:
    """One finding of a document."""
    return types.Diagnostic(
        range=text.range_of(finding.location),
        message=said(finding),
        severity=SEVERITIES[finding.level],
        code=finding.code,
        source=SOURCE,
        related_information=[
            types.DiagnosticRelatedInformation(
                types.Location(
                    Path(related.location.path).absolute().as_uri(),
                    types.Range(
                        types.Position(max(related.location.line - 1, 0), 0),
                        types.Position(max(related.location.line - 1, 0), 0),
                    ),
                ),
                related.message,
            )
            for related in finding.related
        ],
    )


def said(finding: Finding) -> str:
    """The message, and for models what it costs and in which."""
    if finding.target is None:
        return finding.message
    return f"{finding.message}\n{effect_text(finding)} ({models_text(finding)})"


def paragraphs(finding: Finding) -> str:
    """What a finding says, in Markdown."""
    parts = said(finding).split("\n")
    if finding.fix is not None:
        parts.append(f"Fix: {finding.fix.advice}")
    return "\n\n".join(parts)


def quick_fixes(
    findings: Sequence[Finding], uri: str, version: int | None, text: Text
) -> Iterator[types.CodeAction]:
    """An action for each finding that a machine can fix; safe ones are preferred, others say that they are
    not safe."""
    for finding in findings:
        fix = finding.fix
        if fix is None or not fix.edits or finding.target is not None:
            continue
        is_safe = fix.safety == "safe"
        advice = shortened(" ".join(fix.advice.split()), TITLE_CHARACTERS)
        yield types.CodeAction(
            title=f"{finding.code}: {advice}" if is_safe else f"{finding.code} (unsafe fix): {advice}",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[diagnostic(finding, text)],
            is_preferred=is_safe,
            edit=workspace_edit(fix.edits, uri, version, text),
        )


def ignoring_actions(
    findings: Sequence[Finding], path: str, uri: str, version: int | None, text: Text
) -> Iterator[types.CodeAction]:
    """An action for each finding that puts a comment on its line, which silences it there."""
    for finding in findings:
        edits = ignoring(path, text.source, [(finding.location.line, finding.code)])
        if edits and can_be_ignored(finding):
            yield types.CodeAction(
                title=f"{finding.code}: ignore this line",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[diagnostic(finding, text)],
                edit=workspace_edit(edits, uri, version, text),
            )


def workspace_edit(edits: Iterable[Edit], uri: str, version: int | None, text: Text) -> types.WorkspaceEdit:
    """Edits of one document, in the form that every client knows where its version is not known."""
    made = [text.text_edit(edit) for edit in edits]
    if version is None:
        return types.WorkspaceEdit(changes={uri: made})
    document = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, made)])


def overlap(one: types.Range, other: types.Range) -> bool:
    return one.start <= other.end and other.start <= one.end


def share_a_line(one: types.Range, other: types.Range) -> bool:
    return one.start.line <= other.end.line and other.start.line <= one.end.line


def page(code: str, local_rules: Sequence[str]) -> str | None:
    """A rule's page in Markdown, its code and name above it; None of a code that no rule has."""
    own = engine_page(code)
    if own is not None:
        head, _, body = own.partition("\n")
        return f"## {head}\n\n{' '.join(body.split())}\n"
    try:
        sides = find_rule(code, local_rules)
    except UsageError:
        return None
    # Editors that show Markdown as it is written would show entities too.
    return f"## {sides[0].code} {sides[0].name}\n\n{html.unescape(rule_markdown(sides))}"


def code_at(line: str, column: int) -> str | None:
    """The rule's code that a comment of tclint's names at a column, from 0."""
    start = line.lower().find("tclint:")
    if start < 0:
        return None
    return next(
        (match.group() for match in _CODE.finditer(line, start) if match.start() <= column < match.end()),
        None,
    )
