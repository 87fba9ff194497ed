"""Edits of arguments, statements and whole texts, apart from the rules that ask for them."""

from __future__ import annotations

import ast

import pytest

from tclint.core.finding import Edit
from tclint.edits.apply import apply_edits
from tclint.edits.arguments import append_argument, arguments, prepend_argument, remove_argument
from tclint.edits.codemod import safe
from tclint.edits.document import Change, Document, NotEditable
from tclint.edits.imports import after_imports
from tclint.edits.statements import insert_after, insert_before, remove


def changed(text: str, changes: list[Change] | Change | None) -> str | None:
    """The text with changes made; None where there are none."""
    if changes is None:
        return None
    document = Document.of(text)
    several = [changes] if isinstance(changes, Change) else changes
    edits = [
        Edit("f", document.position(item.start), document.position(item.end), item.text) for item in several
    ]
    edits.sort(key=lambda edit: (edit.start, edit.end))
    new, made = apply_edits(text, [edits])
    assert made == [0]
    return new


def first_call(document: Document) -> ast.Call:
    return next(node for node in ast.walk(document.tree) if isinstance(node, ast.Call))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f()", "f(k=1)"),
        ("f(a)", "f(a, k=1)"),
        ("f(a,)", "f(a, k=1)"),
        ("f(a, )", "f(a, k=1 )"),
        ("f((a))", "f((a), k=1)"),
        ("(f)((a), **b)", "(f)((a), **b, k=1)"),
        ("f(  # why\n)", "f(k=1  # why\n)"),
        ("f(x for x in y)", None),
        ("f((x for x in y))", "f((x for x in y), k=1)"),
        ("f(a,\n  b)", "f(a,\n  b,\n  k=1)"),
        ("f(a, b,\n  c, d)", "f(a, b,\n  c, d, k=1)"),
        ("f(\n    a,  # why\n)", "f(\n    a,  # why\n    k=1,\n)"),
        ("f(\n    a  # why\n)", "f(\n    a,  # why\n    k=1\n)"),
        ("f(\n    a, b\n)", "f(\n    a, b, k=1\n)"),
        ("f(a, g(\n    b,\n))", "f(a, g(\n    b,\n), k=1)"),
        ("f('''\n''')", "f('''\n''', k=1)"),
        ("f(ä='ö')(ü)", "f(ä='ö')(ü, k=1)"),
    ],
)
def test_append_argument(text: str, expected: str | None) -> None:
    document = Document.of(text)
    assert changed(text, append_argument(document, first_call(document), "k=1")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f()", "f('c')"),
        ("f(a, b)", "f('c', a, b)"),
        ("f((a))", "f('c', (a))"),
        ("f(\n    a,\n)", "f(\n    'c',\n    a,\n)"),
        ("f(**a)", "f('c', **a)"),
        ("f(x for x in y)", None),
        ("f(  # why\n    a)", None),
    ],
)
def test_prepend_argument(text: str, expected: str | None) -> None:
    document = Document.of(text)
    assert changed(text, prepend_argument(document, first_call(document), "'c'")) == expected


@pytest.mark.parametrize(
    ("text", "index", "expected"),
    [
        ("f(a)", 0, "f()"),
        ("f(\n    a\n)", 0, "f()"),
        ("f(a, b)", 0, "f(b)"),
        ("f(a, b)", 1, "f(a)"),
        ("f(a, (b), c)", 1, "f(a, c)"),
        ("f(a, (b))", 1, "f(a)"),
        ("f(a, k=b,)", 1, "f(a,)"),
        ("f(\n    a,\n    b,\n)", 1, "f(\n    a,\n)"),
        ("f(\n    a,\n    b,\n)", 0, "f(\n    b,\n)"),
        ("f(a,  # why\n  b)", 1, None),
    ],
)
def test_remove_argument(text: str, index: int, expected: str | None) -> None:
    document = Document.of(text)
    call = first_call(document)
    assert changed(text, remove_argument(document, call, arguments(call)[index])) == expected


STATEMENTS = [
    ("x()\n", "s()\nx()\n", "x()\ns()\n", "pass\n"),
    ("x()", "s()\nx()", "x()\ns()", "pass"),
    (
        "a\r\nx()  # c\r\nb\r\n",
        "a\r\ns()\r\nx()  # c\r\nb\r\n",
        "a\r\nx()  # c\r\ns()\r\nb\r\n",
        "a\r\n# c\r\nb\r\n",
    ),
    ("a; x(); b\n", "a; s(); x(); b\n", "a; x(); s(); b\n", "a; b\n"),
    ("x(); b\n", "s()\nx(); b\n", "x(); s(); b\n", "b\n"),
    ("a; x()  # c\n", "a; s(); x()  # c\n", "a; x(); s()  # c\n", "a  # c\n"),
    ("a\nx()  # noqa\n", "a\ns()\nx()  # noqa\n", "a\nx()  # noqa\ns()\n", "a\n"),
    ("a\nx(  # c\n)\n", "a\ns()\nx(  # c\n)\n", "a\nx(  # c\n)\ns()\n", "a\n# c\n"),
    ("x(  # c\n); b\n", "s()\nx(  # c\n); b\n", "x(  # c\n); s(); b\n", "# c\nb\n"),
    ("x();\n", "s()\nx();\n", "x(); s();\n", "pass;\n"),
    ("if a: x()\n", "if a: s(); x()\n", "if a: x(); s()\n", "if a: pass\n"),
    ("if a:\n\tx()\nb\n", "if a:\n\ts()\n\tx()\nb\n", "if a:\n\tx()\n\ts()\nb\n", "if a:\n\tpass\nb\n"),
    ("if a: \\\n  x()\n", "if a: \\\n  s(); x()\n", "if a: \\\n  x(); s()\n", "if a: \\\n  pass\n"),
    ("a\n\x0cx()\n", "a\n\x0cs()\n\x0cx()\n", "a\n\x0cx()\n\x0cs()\n", "a\n"),
    (
        "# tclint: ignore[X]\n\n# why\nx(\n)\n",
        "s()\n# tclint: ignore[X]\n\n# why\nx(\n)\n",
        "# tclint: ignore[X]\n\n# why\nx(\n)\ns()\n",
        "# tclint: ignore[X]\n\n# why\npass\n",
    ),
]


@pytest.mark.parametrize(("text", "before", "after", "removed"), STATEMENTS)
def test_statements(text: str, before: str, after: str, removed: str) -> None:
    document = Document.of(text)
    statement = document.statement(
        next(node for node in ast.walk(document.tree) if isinstance(node, ast.Call))
    )
    assert statement is not None
    assert changed(text, insert_before(document, statement, "s()")) == before
    assert changed(text, insert_after(document, statement, "s()")) == after
    assert changed(text, remove(document, statement)) == removed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a\n", "import a\n\ns()\n"),
        ("import a", "import a\n\ns()"),
        ("'''Doc.'''\nimport a\n\nb\n", "'''Doc.'''\nimport a\n\ns()\n\nb\n"),
        ("import a\nb\nimport c\n", "import a\n\ns()\n\nb\nimport c\n"),
        ("import a  # why\r\nb\r\n", "import a  # why\r\n\r\ns()\r\n\r\nb\r\n"),
        ("try:\n    import a\nexcept ImportError:\n    a = None\nfrom b import (\n    c,\n)\n", None),
        ("import a; import b\n", None),
        ("b\nimport a\n", None),
        ("", None),
    ],
)
def test_after_imports(text: str, expected: str | None) -> None:
    document = Document.of(text)
    if text.startswith("try"):
        expected = text + "\ns()\n"
    assert changed(text, after_imports(document, ["s()"])) == expected


def test_fixes_that_meet_wait_for_the_next_round() -> None:
    one = [Edit("f", (1, 1), (1, 2), "b")]
    touching = [Edit("f", (1, 2), (1, 2), "c"), Edit("f", (1, 5), (1, 5), "d")]
    apart = [Edit("f", (1, 5), (1, 6), "2")]
    assert apply_edits("a = 1\n", [one, touching, apart]) == ("b = 2\n", [0, 2])


def test_fixes_that_make_the_same_change_share_it() -> None:
    shared = Edit("f", (3, 1), (3, 1), "c\n")
    first = [Edit("f", (1, 1), (1, 2), "x"), shared]
    second = [Edit("f", (2, 1), (2, 2), "y"), shared]
    assert apply_edits("a\nb\n", [first, second]) == ("x\ny\nc\n", [0, 1])


def test_a_fix_that_breaks_the_program_is_not_made() -> None:
    broken = [Edit("f", (1, 1), (1, 1), "(")]
    good = [Edit("f", (2, 1), (2, 2), "y")]
    assert apply_edits("a\nb\n", [broken, good]) == ("a\ny\n", [1])


@pytest.mark.parametrize("text", ["a\n", "a\r\nb\rc\n\nd", "", "é = '\u2028\x0c\x85'\n# ü"])
def test_positions_go_both_ways(text: str) -> None:
    document = Document.of(text)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n":
            assert document.offset(*document.position(offset)) == offset
    for node in ast.walk(document.tree):
        if isinstance(node, ast.Name):
            assert document.source(node) == node.id


def test_what_python_cannot_parse_is_not_edited() -> None:
    for text in ("def", "a\x00", "(" * 10_000):
        with pytest.raises(NotEditable):
            Document.of(text)


def test_a_directive_that_a_backslash_joins_to_the_header_stays_there() -> None:
    text = "with a: \\\n    # tclint: ignore[AMP003]\n    f()\n"
    document = Document.of(text)
    call = next(node for node in ast.walk(document.tree) if isinstance(node, ast.Expr))
    new = changed(text, insert_before(document, call, "g()"))
    assert new == "with a: \\\n    # tclint: ignore[AMP003]\n    g()\n    f()\n"


def test_what_several_ways_take_out_goes_once() -> None:
    gone, put = Change(0, 4, ""), Change(4, 4, "x")
    proposal = safe([gone, put, gone])
    assert proposal is not None
    assert proposal.changes == (gone, put)
