"""Runs the codemods on the findings of one file and adds their edits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from tclint.core.finding import Edit, Finding, Fix
from tclint.edits.codemod import Codemod, NotThere
from tclint.edits.codemods import CODEMODS
from tclint.edits.program import Program
from tclint.edits.stretches import edits_in_place
from tclint.edits.texts import edits_between
from tclint.source.syntax.parse import NotPython

_RECURSION_LIMIT = 6_000


def with_fixes(path: str, text: str, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with the edits of codemods; findings that already have edits keep them."""
    if not any(_wants_edits(finding) for finding in findings):
        return list(findings)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    try:
        program = Program(path, text)
        return [_with_fix(program, finding) if _wants_edits(finding) else finding for finding in findings]
    except (NotPython, RecursionError):
        return list(findings)
    finally:
        sys.setrecursionlimit(limit)


def _wants_edits(finding: Finding) -> bool:
    return finding.code in CODEMODS and finding.target is None and not (finding.fix and finding.fix.edits)


def _with_fix(program: Program, finding: Finding) -> Finding:
    codemod = CODEMODS[finding.code](program, finding)
    edits = edits_of(codemod)
    if not edits:
        return finding
    advice = codemod.advice or (finding.fix.advice if finding.fix else "") or finding.message
    return replace(finding, fix=Fix(advice, codemod.safety, edits))


def edits_of(codemod: Codemod) -> tuple[Edit, ...]:
    """The edits of a codemod, including the imports that it adds or orphans."""
    program = codemod.program
    try:
        codemod.plan()
    except NotThere:
        return ()
    if not codemod.changes_anything or not program.can_be_written:
        return ()
    if codemod.may_change_imports:
        from tclint.edits.imports import changes_imports, with_imports

        if changes_imports(codemod):
            tree = with_imports(codemod, program.module.visit(codemod))
            return edits_between(program.path, program.text, tree.code)
    edits = edits_in_place(codemod)
    if edits is None:
        edits = edits_between(program.path, program.text, program.module.visit(codemod).code)
    return edits
