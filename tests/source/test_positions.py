"""Positions of sites are those that libcst's own provider gives."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from tclint.source.syntax import positions
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
    "from a import (\n    b,\n    c as d,\n)\nprint(d, f'{b(1)} {c!r:>{w()}}')\n\x0cwhile f(): pass\n",
)


def by_libcst(module: cst.Module, nodes: list[cst.CSTNode]) -> tuple[Span, ...]:
    found = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    ranges = [found[node] for node in nodes]
    return tuple(Span(at.start.line, at.start.column + 1, at.end.line, at.end.column + 1) for at in ranges)


@pytest.mark.parametrize("text", [*ODD, *(path.read_text("utf-8") for path in LABELLED)])
def test_spans_are_those_of_libcst(text: str) -> None:
    module = cst.parse_module(text)
    _, nodes = walk(module)
    assert spans_of(module, nodes)[1:] == by_libcst(module, nodes)[1:]  # the first is the module


def test_a_libcst_that_asks_for_more_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(positions._State, "add_indent_tokens")
    module = cst.parse_module(ODD[4])
    _, nodes = walk(module)
    assert spans_of(module, nodes) == by_libcst(module, nodes)
