"""Fix of sizes that no power of two divides."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.document import Change, Document

_MULTIPLE = 256


@codemod("DIM014")
def round_width(document: Document, finding: Finding) -> Proposal | None:
    """`int(8 * dim / 3)` becomes `256 * ((int(8 * dim / 3) + 255) // 256)`."""
    node = document.find(finding.location, ast.stmt) or document.find(finding.location, ast.Call)
    statement = document.statement(node) if node is not None else None
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return None
    value = statement.value
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.func.id != "int":
        return None
    start, end = document.start(value), document.end(value)
    return unsafe(
        [
            Change(start, start, f"{_MULTIPLE} * (("),
            Change(end, end, f" + {_MULTIPLE - 1}) // {_MULTIPLE})"),
        ]
    )
