"""Runs the codemods on the findings of one file and adds their edits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from libcst.codemod.visitors import AddImportsVisitor

from tclint.core.finding import Edit, Finding, Fix
from tclint.edits.codemod import Codemod
from tclint.edits.codemods import CODEMODS
from tclint.edits.program import Program
from tclint.edits.statements import RemoveImports
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
    codemod.plan()
    if not codemod.changes_anything or not program.can_be_written:
        return ()
    if not _changes_imports(codemod):
        edits = edits_in_place(codemod)
        if edits is not None:
            return edits
    tree = program.module.visit(codemod)
    for visitor in (RemoveImports, AddImportsVisitor):
        if visitor.CONTEXT_KEY in codemod.context.scratch:
            tree = visitor(codemod.context).transform_module(tree)
    return edits_between(program.path, program.text, tree.code)


def _changes_imports(codemod: Codemod) -> bool:
    """Whether a codemod adds an import, or may orphan one to which only the changed code refers."""
    scratch = codemod.context.scratch
    if AddImportsVisitor.CONTEXT_KEY in scratch:
        return True
    unwanted = {name or obj for _, obj, name in scratch.get(RemoveImports.CONTEXT_KEY, ()) if obj is not None}
    return not all(codemod.program.is_used_outside(name, codemod.changed) for name in unwanted)
