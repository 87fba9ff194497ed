"""Positions of node ids cut their text out of the file."""

from __future__ import annotations

import re
from pathlib import Path

import libcst as cst
import pytest

from tclint.source.syntax.positions import Span, spans_of
from tclint.source.syntax.walk import walk

LABELLED = sorted((Path(__file__).parent / "labelled").glob("*.py"))[::8]
ODD = (
    "",
    "\n",
    "x = f()",
    "class A: x = f(1); y = g(\n 2)\n",
    "@wrap(\n  1)\n\n# why\nasync def f(a, *, b=g()):\n\twith h() as c, (k()):\n\t\tyield c\n",
    'x = \'é\' + f("""a\nb""", 𝒳)  ;  y = f(z)\n',
    "if a():\r\n    b()\r\nelif c():\r\n    d()\r\nelse:\r\n    e()\r\n\r\n",
    "try:\n  f()\nexcept* (A, B) as e:\n  g(e)\nfinally:\n  h()\n",
    "from a import (\n    b,\n    c as d,\n)\nprint(d, f'{b(1)} {c!r:>{w()}}')\n\x0c\nwhile f(): pass\n",
)


def cut(text: str, span: Span) -> str:
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)[span.line - 1 : span.end_line]
    kept = len("".join(lines[:-1])) + span.end_column - 1
    return "".join(lines)[span.column - 1 : kept]


@pytest.mark.parametrize("text", [*ODD, *(path.read_text("utf-8") for path in LABELLED)])
def test_spans_cut_the_nodes_out_of_the_text(text: str) -> None:
    module = cst.parse_module(text)
    _, nodes = walk(module)
    spans = spans_of(module, nodes)
    assert len(spans) == len(nodes)
    for node, span in zip(nodes, spans, strict=True):
        if isinstance(node, cst.Call | cst.Name | cst.Import | cst.ImportFrom):
            bare = node.with_changes(lpar=(), rpar=()) if isinstance(node, cst.Call) else node
            assert cut(text, span) == module.code_for_node(bare)
