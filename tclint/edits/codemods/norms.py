"""Fix of batch norms that a cast of their model takes along."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import dotted, torch_name
from tclint.edits.statements import indentation, is_first_on_line, is_last_on_line

_NAMES = ("module", "layer", "part")


@codemod("ARC019")
def norms_in_float(document: Document, finding: Finding) -> Proposal | None:
    """Put the batch norms back to float32 behind the cast of the model."""
    call = document.find(finding.location, ast.Call)
    torch, model = torch_name(document), str(finding.evidence.get("model", ""))
    statement = document.statement(call) if call is not None else None
    if torch is None or not model or not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
        return None
    if not _leaves_cast(statement, call, model):
        return None
    if not is_first_on_line(document, statement) or not is_last_on_line(document, statement):
        return None
    taken = {node.id for node in document.walk(document.tree) if isinstance(node, ast.Name)}
    taken |= {node.arg for node in document.walk(document.tree) if isinstance(node, ast.arg)}
    name = next((name for name in _NAMES if name not in taken), None)
    if name is None:
        return None
    outer = indentation(document, statement)
    step = _step(document)
    lines = (
        f"for {name} in {model}.modules():",
        f"{step}if isinstance({name}, {torch}.nn.modules.batchnorm._BatchNorm):",
        f"{step}{step}{name}.float()",
    )
    at = document.line_end(document.line_of(document.end(statement)))
    code = "".join(f"{document.newline}{outer}{line}" for line in lines)
    return unsafe(Change(at, at, code), "Put the batch norms back to float32 after the cast.")


def _leaves_cast(statement: ast.Assign | ast.AnnAssign | ast.Expr, call: ast.Call | None, model: str) -> bool:
    """The model is what the statement casts: `model.half()`, or `model = ....half()`."""
    if isinstance(statement, ast.Expr):
        return (
            statement.value is call
            and isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and dotted(call.func.value) == model
        )
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if [dotted(target) for target in targets] != [model]:
        return False
    value: ast.AST | None = statement.value
    # `DDP(Net().half()).cuda()` is a module that holds the model.
    while isinstance(value, ast.Call):
        if value is call:
            return True
        value = value.func.value if isinstance(value.func, ast.Attribute) else None
    return False


def _step(document: Document) -> str:
    """By how much the text indents its blocks."""
    for node in document.walk(document.tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.stmt) and isinstance(body, list) and body:
            first = body[0]
            if is_first_on_line(document, node) and is_first_on_line(document, first):
                outer, inner = indentation(document, node), indentation(document, first)
                if inner.startswith(outer) and inner != outer:
                    return inner[len(outer) :]
    return "    "
