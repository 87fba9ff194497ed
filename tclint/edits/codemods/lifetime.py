"""Fixes of how long a scaler lives and when it is updated."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.codemods.scaling import uses
from tclint.edits.document import Change, Document
from tclint.edits.imports import dotted
from tclint.edits.statements import (
    insert_after,
    insert_before,
    is_first_on_line,
    is_last_on_line,
    remove,
    with_comment,
)

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@codemod("AMP011")
def one_scaler_one_update(document: Document, finding: Finding) -> Proposal | None:
    """Make the scaler before the loops; update it behind the last step."""
    call = document.find(finding.location, ast.Call)
    statement = document.statement(call) if call is not None else None
    if call is None or statement is None:
        return None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return unsafe(_hoisted(document, statement))
    if isinstance(statement, ast.Expr) and statement.value is call:
        return unsafe(_later(document, statement, call))
    return None


def _hoisted(document: Document, statement: ast.Assign) -> list[Change] | None:
    """The statement before the outermost loop of its function; None where it needs what a loop binds."""
    function = document.function(statement)
    around = [outer for outer in document.ancestors(statement) if document.function(outer) is function]
    loops = [outer for outer in around if isinstance(outer, _LOOPS)]
    if not loops or document.parent(statement) is not loops[0]:
        return None
    # A test around a loop would have to move too.
    between = around[: around.index(loops[-1])]
    if any(not isinstance(outer, _LOOPS) for outer in between):
        return None
    target = statement.targets[0]
    name = dotted(target)
    loop = loops[-1]
    bound = {
        node.id
        for node in document.walk(loop)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    read = {node.id for node in document.walk(statement.value) if isinstance(node, ast.Name)}
    stored = [
        node
        for node in document.walk(loop)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and dotted(node) == name
    ]
    if not name or read & bound or len(stored) != 1 or statement.type_comment:
        return None
    whole_line = is_first_on_line(document, statement) and is_last_on_line(document, statement)
    start, end = document.start(statement), document.end(statement)
    if not whole_line or not is_first_on_line(document, loop):
        return None
    if document.line_of(start) != document.line_of(end):
        return None
    if len(loops[0].body) == 1:
        return None  # the loop would be left with nothing
    return [
        insert_before(document, loop, with_comment(document, statement)),
        remove(document, statement, with_comments=True),
    ]


def _later(document: Document, statement: ast.Expr, call: ast.Call) -> list[Change] | None:
    """The update behind the last step of its block; only taken out where one stands there already."""
    scaler = dotted(call.func).rpartition(".")[0]
    block = document.block(statement)
    at = next(index for index, item in enumerate(block) if item is statement)
    steps, updates = [], []
    for item in block[at + 1 :]:
        value = item.value if isinstance(item, ast.Expr) else None
        method = dotted(value.func) if isinstance(value, ast.Call) else ""
        if method == f"{scaler}.step":
            steps.append(item)
        elif method == f"{scaler}.update":
            updates.append(item)
        elif method.endswith((".backward", ".zero_grad")):
            break  # the next cycle
    if not scaler or not steps or call.args or call.keywords:
        return None
    here = {id(document.statement(use.call)) for use in uses(document, document.function(call), "step")}
    if not {id(step) for step in steps} <= here:
        return None
    if updates and document.start(updates[-1]) > document.start(steps[-1]):
        return [remove(document, statement)]
    last = steps[-1]
    if updates or not is_first_on_line(document, last) or not is_last_on_line(document, last):
        return None
    return [
        remove(document, statement, with_comments=True),
        insert_after(document, last, with_comment(document, statement)),
    ]
