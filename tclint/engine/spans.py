"""Adds columns and ends to places of which a trace knows only the line.

Read with `ast`: most runs of models need no table, and importing libcst takes 6 to 9 % of such a run.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from tclint.core.finding import Finding, Location
from tclint.core.target import is_recipe
from tclint.edits.sizes.syntax import end_of, parsed, start_of
from tclint.source.syntax.parse import NotPython, decode

MAX_FILE_BYTES = 8 * 2**20
"""Larger files are taken for data."""


@dataclass
class Spans:
    """Finds the code at a line. Each file is read once; it may be missing or changed by now."""

    _files: dict[str, tuple[str, dict[int, ast.expr | ast.stmt]]] = field(default_factory=dict)

    def with_columns(self, finding: Finding) -> Finding:
        """The finding with columns, for places that have none, of the call or product on their line."""
        related = tuple(replace(item, location=self._placed(item.location)) for item in finding.related)
        return replace(finding, location=self._placed(finding.location), related=related)

    def _placed(self, location: Location) -> Location:
        if location.column != 1 or location.end_column is not None:
            return location
        if location.path not in self._files:
            self._files[location.path] = _read(location.path)
        text, nodes = self._files[location.path]
        found = nodes.get(location.line)
        if found is not None:
            end_line, end_column = end_of(text, found)
            return replace(
                location, column=start_of(text, found)[1], end_line=end_line, end_column=end_column
            )
        lines = text.split("\n")
        line = lines[location.line - 1].rstrip() if 0 < location.line <= len(lines) else ""
        if not line:
            return location
        start = len(line) - len(line.lstrip())
        return replace(location, column=start + 1, end_line=location.line, end_column=len(line) + 1)


def _read(path: str) -> tuple[str, dict[int, ast.expr | ast.stmt]]:
    """The text, and the node that begins on each: the largest call or matrix product, else the simple
    statement."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        # Lines are those that Python counts, where a form feed ends none.
        text = decode(data).replace("\r\n", "\n").replace("\r", "\n") if len(data) <= MAX_FILE_BYTES else ""
    except (OSError, NotPython):
        return "", {}
    if is_recipe(path):
        return text, {}
    tree = parsed(text)
    if not tree.body:
        return "", {}
    products: dict[int, ast.expr | ast.stmt] = {}
    statements: dict[int, ast.expr | ast.stmt] = {}
    headers: set[int] = set()
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, ast.Call) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)):
            products.setdefault(node.lineno, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            headers.add(node.lineno)
        elif isinstance(node, ast.stmt) and not hasattr(node, "body"):
            statements.setdefault(node.lineno, node)
    found = {**statements, **products}
    return text, {line: node for line, node in found.items() if line not in headers}
