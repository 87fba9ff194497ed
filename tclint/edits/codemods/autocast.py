"""Fixes around autocast regions: backward behind the region, models left in float32."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.arguments import arguments, remove_argument
from tclint.edits.codemod import Proposal, codemod, safe, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import orphaned
from tclint.edits.statements import dedent_tail, remove

_OF_THE_STEP = frozenset(
    ("backward", "scale", "step", "update", "unscale_", "zero_grad", "clip_grad_norm_", "clip_grad_value_")
)
"""Calls that compute nothing that autocast concerns."""


@codemod("AMP006")
def backward_behind_region(document: Document, finding: Finding) -> Proposal | None:
    """Dedent the tail of the autocast region from the backward call on."""
    call = document.find(finding.location, ast.Call)
    if call is None or not finding.related:
        return None
    region = finding.related[0].location
    with_ = None
    path: list[ast.AST] = [call]
    for outer in document.ancestors(call):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            return None
        path.append(outer)
        if isinstance(outer, ast.With) and any(
            document.position(document.start(item.context_expr)) == (region.line, region.column)
            for item in outer.items
        ):
            with_ = outer
            break
    if with_ is None or len(with_.items) != 1:
        return None
    top = path[-2]
    first = next(index for index, item in enumerate(with_.body) if item is top)
    tail = with_.body[first:]
    if any(not _belongs_to_step(item) for item in tail):
        return None
    changes = dedent_tail(document, with_, first)
    if changes and first == 0:
        changes += orphaned(document, with_.items[0])
    nested = any(isinstance(item, ast.If) for item in tail)
    return unsafe(changes) if nested else safe(changes)


def _belongs_to_step(statement: ast.stmt) -> bool:
    """Backward passes and what follows them: nothing that autocast would run in another precision."""
    if isinstance(statement, ast.If):
        return not any(isinstance(node, ast.Call) and node.args for node in ast.walk(statement.test)) and all(
            _belongs_to_step(item) for item in (*statement.body, *statement.orelse)
        )
    if isinstance(statement, ast.Pass):
        return True
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = statement.value.func
    if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) not in _OF_THE_STEP:
        return False
    # What is passed on is not computed here: `(model(x) - y).mean().backward()` is no tail.
    return all(
        not isinstance(node, ast.Call)
        or (isinstance(node.func, ast.Attribute) and node.func.attr in (*_OF_THE_STEP, "parameters", "sum"))
        or getattr(node.func, "id", "") in _OF_THE_STEP
        for node in ast.walk(statement.value)
    )


@codemod("AMP009")
def keep_in_float32(document: Document, finding: Finding) -> Proposal | None:
    """Take out `.half()` or the dtype of `.to(...)`: autocast casts where that is safe."""
    call = document.find(finding.location, ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute):
        return None
    given = arguments(call)
    if call.func.attr == "to":
        dtypes = [item for item in given if _is_16_bit(item)]
        if len(dtypes) != 1:
            return None
        if len(given) > 1:
            return unsafe(remove_argument(document, call, dtypes[0]))
    elif call.func.attr not in ("half", "bfloat16") or given:
        return None
    statement = document.statement(call)
    if isinstance(statement, ast.Expr) and statement.value is call:
        return unsafe(remove(document, statement))
    # Parentheses around the receiver stay with it.
    dots = document.tokens_in(document.end(call.func.value), document.end(call))
    dot = next((token for token in dots if token.string == "."), None)
    if dot is None or document.has_comment(dot.start, document.end(call)):
        return None
    return unsafe(_link(document, dot.start, document.end(call)))


def _link(document: Document, start: int, end: int) -> Change:
    """Takes one link out of a chain of calls, with its line where it has one; a comment on it stays."""
    line = document.line_of(start)
    rest = document.text[end : document.line_end(line)]
    if document.line_of(end) != line or document.text[document.line_start(line) : start].strip():
        return Change(start, end, "")
    if not rest.strip():
        return Change(document.line_start(line), document.line_start(line + 1), "")
    return Change(start, end + len(rest) - len(rest.lstrip()), "") if "#" in rest else Change(start, end, "")


def _is_16_bit(argument: ast.expr | ast.keyword) -> bool:
    value = argument.value if isinstance(argument, ast.keyword) else argument
    return isinstance(value, ast.Attribute) and value.attr in ("float16", "half", "bfloat16")
