"""Writes comments that silence findings at the findings' lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from tclint.core.finding import ENGINE_FAMILY, Edit, Finding
from tclint.edits.texts import apply_edits
from tclint.engine.fixes.files import FixedFile
from tclint.engine.suppressions import Comments
from tclint.source.syntax.encoding import encoded_like
from tclint.source.syntax.parse import NotPython, decode


def ignoring(path: str, text: str, places: Iterable[tuple[int, str]]) -> tuple[Edit, ...]:
    """Edits that add `# tclint: ignore[CODE]` to lines, or a code to the brackets of an existing comment.

    Args:
        path: the file's path, for the edits.
        text: the file's text; a text that cannot be tokenized gets no comments.
        places: (line, code) of each finding.
    """
    comments = Comments.of(text)
    codes: dict[int, list[str]] = {}
    for line, code in sorted(set(places)):
        if comments is not None:
            codes.setdefault(comments.line_for(line), []).append(code)
    edits = []
    for line, own in codes.items():
        assert comments is not None
        listed = comments.end_of_rules(line)
        column = listed or len(comments.lines[line - 1].rstrip()) + 1
        end = column if listed else len(comments.lines[line - 1]) + 1
        new = f", {', '.join(own)}" if listed else f"  # tclint: ignore[{', '.join(own)}]"
        edits.append(Edit(path, (line, column), (line, end), new))
    return tuple(edits)


def can_be_ignored(finding: Finding) -> bool:
    """Whether tclint may write a comment for a finding: not for reports of the engine itself, which should be
    fixed, and not in notebooks, whose editor writes the cells."""
    return not finding.code.startswith(ENGINE_FAMILY) and finding.location.cell is None


def with_comments(findings: Sequence[Finding]) -> tuple[list[FixedFile], int]:
    """The files of findings with a comment for each place, and the number of findings that get none.

    Files of installed packages are not changed.
    """
    places: dict[str, list[tuple[int, str]]] = {}
    ignored: dict[str, int] = {}
    for finding in findings:
        path = os.path.abspath(finding.location.path)
        if not can_be_ignored(finding) or "site-packages" in path.split(os.sep):
            continue
        ignored[path] = ignored.get(path, 0) + 1
        alike = (related.location for related in finding.related if related.is_alike)
        places.setdefault(path, []).extend((place.line, finding.code) for place in (finding.location, *alike))
    files = []
    for path, own in places.items():
        try:
            with open(path, "rb") as file:
                before = file.read()
            text = decode(before)
        except (OSError, NotPython):
            continue
        after, made = apply_edits(text, [ignoring(path, text, own)])
        if made and after != text:
            files.append(FixedFile(path, before, encoded_like(after, before), ignored[path]))
    return files, len(findings) - sum(file.fixed for file in files)
