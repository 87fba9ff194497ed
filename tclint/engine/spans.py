"""Adds columns and ends to places of which a trace knows only the line."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from tclint.core.finding import Finding, Location
from tclint.core.target import is_recipe
from tclint.source.syntax.parse import NotPython, decode

MAX_FILE_BYTES = 8 * 2**20
"""Larger files are taken for data."""


@dataclass
class Spans:
    """Finds the code at a line. Each file is read once; it may be missing or changed by now."""

    _files: dict[str, tuple[list[str], dict[int, ast.expr | ast.stmt]]] = field(default_factory=dict)

    def with_columns(self, finding: Finding) -> Finding:
        """The finding with columns, for places that have none, of the call or product on their line."""
        related = tuple(replace(item, location=self._placed(item.location)) for item in finding.related)
        return replace(finding, location=self._placed(finding.location), related=related)

    def _placed(self, location: Location) -> Location:
        if location.column != 1 or location.end_column is not None:
            return location
        if location.path not in self._files:
            self._files[location.path] = _read(location.path)
        lines, nodes = self._files[location.path]
        if not 0 < location.line <= len(lines):
            return location
        found = nodes.get(location.line)
        if found is not None and found.end_lineno is not None and found.end_col_offset is not None:
            return replace(
                location,
                column=_characters(lines[found.lineno - 1], found.col_offset) + 1,
                end_line=found.end_lineno,
                end_column=_characters(lines[found.end_lineno - 1], found.end_col_offset) + 1,
            )
        text = lines[location.line - 1].rstrip()
        if not text:
            return location
        start = len(text) - len(text.lstrip())
        return replace(location, column=start + 1, end_line=location.line, end_column=len(text) + 1)


def _read(path: str) -> tuple[list[str], dict[int, ast.expr | ast.stmt]]:
    """The lines, and the node that begins on each: the largest call or matrix product, else the simple
    statement."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            return [], {}
        # ast counts bytes of UTF-8, and lines as Python does, where a form feed ends no line.
        text = decode(data).replace("\r\n", "\n").replace("\r", "\n")
        if is_recipe(path):
            return text.split("\n"), {}
        tree = ast.parse(text)
    except (OSError, NotPython, ValueError, SyntaxError, RecursionError, MemoryError):
        return [], {}
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
    return text.split("\n"), {line: node for line, node in found.items() if line not in headers}


def _characters(line: str, byte_offset: int) -> int:
    return len(line.encode("utf-8")[:byte_offset].decode("utf-8", "ignore"))
