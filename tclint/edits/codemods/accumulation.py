"""Fix of unscaling in every round of an accumulation: it belongs to the rounds that step."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.codemods.scaling import clips_in
from tclint.edits.document import Change, Document
from tclint.edits.imports import dotted
from tclint.edits.statements import indentation, is_first_on_line, is_last_on_line, remove


@codemod("AMP010")
def unscale_in_rounds_that_step(document: Document, finding: Finding) -> Proposal | None:
    """Move `unscale_` and the clipping behind it into the `if` that guards the step."""
    call = document.find(finding.location, ast.Call)
    statement = document.statement(call) if call is not None else None
    if call is None or not isinstance(statement, ast.Expr) or statement.value is not call:
        return None
    block = document.block(statement)
    at = next(index for index, item in enumerate(block) if item is statement)
    if any(_same_call(document, item, statement) for item in block[:at]):
        return unsafe(remove(document, statement))  # a second time
    moved: list[ast.stmt] = [statement]
    for item in block[at + 1 :]:
        if isinstance(item, ast.If):
            return _into_guard(document, moved, item, dotted(call.func).rpartition(".")[0])
        if not isinstance(item, ast.Expr | ast.Assign) or not clips_in(document, item):
            return None
        moved.append(item)
    return None


def _same_call(document: Document, one: ast.stmt, other: ast.stmt) -> bool:
    return isinstance(one, ast.Expr) and document.source(one) == document.source(other)


def _into_guard(document: Document, moved: list[ast.stmt], guard: ast.If, scaler: str) -> Proposal | None:
    steps = [
        node
        for item in guard.body
        for node in document.walk(item)
        if isinstance(node, ast.Call) and dotted(node.func) == f"{scaler}.step"
    ]
    first = guard.body[0]
    everything = (*moved, guard, first)
    if not steps or guard.orelse or not all(is_first_on_line(document, item) for item in everything):
        return None
    if not all(is_last_on_line(document, item) for item in moved):
        return None
    outer, inner = indentation(document, guard), indentation(document, first)
    start = document.line_start(document.line_of(document.start(moved[0])))
    last = document.line_of(document.end(moved[-1]))
    end = document.line_start(last + 1)
    lines = document.text[start:end].splitlines(keepends=True)
    numbers = range(document.line_of(start), last + 1)
    if not inner.startswith(outer) or any(document.inside_string(number) for number in numbers):
        return None
    deeper = "".join(
        inner + line[len(outer) :] if line.startswith(outer) and line.strip() else line for line in lines
    )
    at = document.line_start(document.line_of(document.start(first)))
    return unsafe([Change(start, end, ""), Change(at, at, deeper)])
