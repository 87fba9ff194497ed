"""Edits of arguments, statements and whole texts, apart from the rules that ask for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import ClassVar

import libcst as cst
import pytest
from fixing import fixed

from tclint.config.settings import Settings
from tclint.core.finding import Edit, Finding, Location
from tclint.core.saved import from_json, to_json
from tclint.edits.codemod import Codemod, append_argument, append_item, prepend_argument, remove_argument
from tclint.edits.program import Program, Statement, find_all
from tclint.edits.registry import edits_of, with_fixes
from tclint.edits.texts import apply_edits, edits_between
from tclint.engine.check import check
from tclint.engine.rules.registry import all_rules
from tclint.engine.sources.program import lint_text
from tclint.source.source_rule import SourceRule


class Recorded(Codemod):
    """What a test records, on the statement of the first call."""

    record: ClassVar[Callable[[Codemod, Statement], None]]

    def plan(self) -> None:
        statement = self.program.statement(find_all(self.program.module, cst.Call)[0])
        assert statement is not None
        self.record(statement)


def recorded(text: str, record: Callable[[Codemod, Statement], None]) -> str:
    """The text after the edits that come of a recorded change."""
    finding = Finding("X", "x", "info", "high", "X.", Location("f", 1))
    kind = type("Recorded", (Recorded,), {"record": record})
    new, made = apply_edits(text, [edits_of(kind(Program("f", text), finding))])
    assert made == [0]
    return new


def changed(text: str, change: Callable[[cst.Call], cst.CSTNode]) -> str:
    module = cst.parse_module(text)
    call = find_all(module, cst.Call)[0]
    return cst.ensure_type(module.deep_replace(call, change(call)), cst.Module).code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f()", "f(k=1)"),
        ("f(a)", "f(a, k=1)"),
        ("f(a,)", "f(a, k=1)"),
        ("f(a, )", "f(a, k=1 )"),
        ("f((a))", "f((a), k=1)"),
        ("(f)((a), **b)", "(f)((a), **b, k=1)"),
        ("f(  # why\n)", "f(  # why\nk=1)"),
        ("f(x for x in y)", "f((x for x in y), k=1)"),
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
def test_append_argument(text: str, expected: str) -> None:
    assert changed(text, lambda call: append_argument(call, "k=1")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f()", "f('c')"),
        ("f(a, b)", "f('c', a, b)"),
        ("f((a))", "f('c', (a))"),
        ("f(\n    a,\n)", "f(\n    'c',\n    a,\n)"),
        ("f(**a)", "f('c', **a)"),
        ("f(x for x in y)", "f('c', (x for x in y))"),
        ("f(  # why\n    a)", "f(  # why\n    'c',\n    a)"),
    ],
)
def test_prepend_argument(text: str, expected: str) -> None:
    assert changed(text, lambda call: prepend_argument(call, "'c'")) == expected


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
    ],
)
def test_remove_argument(text: str, index: int, expected: str) -> None:
    assert changed(text, lambda call: remove_argument(call, call.args[index])) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'a': f()}", "{'a': f(), 'k': 1}"),
        ("{'a': f(), }", "{'a': f(), 'k': 1 }"),
        ("{\n    'a': f()  # why\n}", "{\n    'a': f(),  # why\n    'k': 1\n}"),
        ("{\n    'a': f(),\n}", "{\n    'a': f(),\n    'k': 1,\n}"),
    ],
)
def test_append_item(text: str, expected: str) -> None:
    module = cst.parse_module(text)
    display = find_all(module, cst.Dict)[0]
    new = module.deep_replace(display, append_item(display, "'k': 1"))
    assert cst.ensure_type(new, cst.Module).code == expected


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
    ("a; x()  # c\n", "a; s(); x()  # c\n", "a; x()  # c\ns()\n", "a  # c\n"),
    ("a\nx()  # noqa\n", "a\ns()\nx()  # noqa\n", "a\nx()  # noqa\ns()\n", "a\n"),
    ("a\nx(  # c\n)\n", "a\ns()\nx(  # c\n)\n", "a\nx(  # c\n)\ns()\n", "a\n# c\n"),
    ("x(  # c\n); b\n", "s()\nx(  # c\n); b\n", "x(  # c\n); s(); b\n", "# c\nb\n"),
    ("x();\n", "s()\nx();\n", "x();\ns()\n", "pass\n"),
    ("if a: x()\n", "if a: s(); x()\n", "if a: x(); s()\n", "if a: pass\n"),
    ("if a:\n\tx()\nb\n", "if a:\n\ts()\n\tx()\nb\n", "if a:\n\tx()\n\ts()\nb\n", "if a:\n\tpass\nb\n"),
    ("if a: \\\n  x()\n", "if a: \\\n  s(); x()\n", "if a: \\\n  x(); s()\n", "if a: \\\n  pass\n"),
    (
        "a\n# tclint: ignore[X]\n\n# why\nx(\n)\n",
        "a\ns()\n# tclint: ignore[X]\n\n# why\nx(\n)\n",
        "a\n# tclint: ignore[X]\n\n# why\nx(\n)\ns()\n",
        "a\n# tclint: ignore[X]\n\n# why\n",
    ),
]


@pytest.mark.parametrize(("text", "before", "after", "removed"), STATEMENTS)
def test_statements(text: str, before: str, after: str, removed: str) -> None:
    assert recorded(text, lambda codemod, line: codemod.insert_before(line, "s()")) == before
    assert recorded(text, lambda codemod, line: codemod.insert_after(line, "s()")) == after
    assert recorded(text, lambda codemod, line: codemod.remove(line)) == removed  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\n", "b\n"),
        ("a\r\nb\rc\n\nd", "a\nb\rC\n\nd\n"),
        ("", "x"),
        ("x\r\n", "x\ry\r\n"),
        ("é = '\u2028\x0c\x85'\n# ü", "é = '\u2028\x85'\n\n# ü"),
        ("a\nb\nc\n", "a\nc\n"),
        ("a\nb", "a\nb()\nc"),
        ("a\n" * 300, "a\n" * 301),
    ],
)
def test_edits_make_one_text_of_another(before: str, after: str) -> None:
    assert edits_between("f", before, before) == ()
    edits = edits_between("f", before, after)
    parts = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for edit in edits:
        for line, column in (edit.start, edit.end):
            assert 1 <= line <= len(parts)
            assert 1 <= column <= len(parts[line - 1]) + 1
    assert _made(before, edits) == after


def _made(text: str, edits: tuple[Edit, ...]) -> str:
    from tclint.edits.texts import _applied

    return _applied(text, edits)


def test_a_file_that_libcst_would_write_in_another_way_is_left_alone() -> None:
    text = "a\n\x0cx()\n"
    assert recorded(text, lambda codemod, line: codemod.insert_after(line, "s()")) == text


def test_a_directive_that_a_backslash_joins_to_the_header_stays_there() -> None:
    text = "with a: \\\n    # tclint: ignore[AMP003]\n    f()\n"
    new = recorded(text, lambda codemod, line: codemod.insert_before(line, "g()"))
    assert new.index("g()") < new.index("f()")


SCALED = """\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def found_in(text: str) -> Finding:
    rules = [rule() for rule in all_rules() if rule.code == "AMP008" and issubclass(rule, SourceRule)]
    (finding,) = lint_text(text, rules, Settings(), "train.py")
    return finding


def test_a_kept_finding_has_the_same_fix() -> None:
    finding = found_in(SCALED)
    kept = from_json(json.loads(json.dumps(to_json(finding))))
    assert with_fixes("train.py", SCALED, [kept]) == with_fixes("train.py", SCALED, [finding]) != [finding]


@pytest.mark.parametrize("place", [Location("train.py", 3, 1, 3, 7), Location("scalers.py", 3, 10, 3, 38)])
def test_a_fix_whose_place_holds_no_call_or_is_in_another_file_stays_advice(place: Location) -> None:
    finding = found_in(SCALED)
    assert finding.fix is not None
    assert finding.fix.places == {"made": (Location("train.py", 3, 10, 3, 38),)}
    elsewhere = replace(finding, fix=replace(finding.fix, places={"made": (place,)}))
    assert with_fixes("train.py", SCALED, [elsewhere]) == [elsewhere]


MADE = """\
import torch
from other import pretrain
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """\
for images in loader:
    loss = model(images.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_program_that_trains_in_two_files_keeps_both_in_float32(tmp_path: Path) -> None:
    """A region in one of them would hide the other, which no fix of this file reaches."""
    (tmp_path / ".git").mkdir()
    before = f"{MADE}{LOOP}pretrain(model, optimizer, loader)\n"
    (tmp_path / "other.py").write_text(f"def pretrain(model, optimizer, loader):\n{indent(LOOP, '    ')}")
    (tmp_path / "main.py").write_text(before)
    for target in (tmp_path, tmp_path / "main.py"):
        findings = check([str(target)], Settings(select=("AMP016",))).findings
        assert [finding.fix.edits for finding in findings if finding.fix] == [()]
    (tmp_path / "other.py").write_text("def pretrain(model, optimizer, loader):\n    pass\n")
    data, outcome = fixed(tmp_path / "main.py", Settings(select=("AMP016",)))
    assert data.decode() != before
    assert not outcome.report.findings


def test_comments_of_an_import_that_goes_stay() -> None:
    from libcst.codemod.visitors import RemoveImportsVisitor

    def record(codemod: Codemod, line: Statement) -> None:
        assert isinstance(line, cst.BaseSmallStatement)
        codemod.remove(line)
        RemoveImportsVisitor.remove_unused_import_by_node(codemod.context, line)

    text = "import b\n# Ours.\nfrom c import f  # why\nimport d\nf()\nb\n"
    assert recorded(text, record) == "import b\n# Ours.\n# why\nimport d\nb\n"


def test_comments_of_a_call_that_goes_keep_their_order() -> None:
    def record(codemod: Codemod, line: Statement) -> None:
        assert isinstance(line, cst.BaseSmallStatement)
        codemod.remove(line)

    text = "f(  # one\n    a,  # two\n)\ng()\n"
    assert recorded(text, record) == "# one\n# two\ng()\n"


def test_a_module_has_the_name_that_the_top_level_gives_it() -> None:
    inner = "import torch as t\n\ndef f():\n    import torch.nn.functional as F\n"
    assert Program("a.py", inner).name_of("torch.nn.functional") == "t.nn.functional"
    for line in ("from torch.nn import functional as F", "import torch.nn.functional as F"):
        assert Program("a.py", f"{line}\n").name_of("torch.nn.functional") == "F"
    assert Program("a.py", "import torchvision\n").name_of("torch.nn.functional") is None


def test_codemods_of_libcst_are_imported_only_where_imports_change() -> None:
    program = """
import sys
from tclint.core.finding import Finding, Location
from tclint.edits.registry import with_fixes
what = ("AMP007", "a", "error", "high", "m")
def fixed(text, line):
    (found,) = with_fixes("a.py", text, [Finding(*what, Location("a.py", line, 1))])
    assert found.fix.edits
    return "libcst.codemod" in sys.modules or "libcst.matchers" in sys.modules
call = "(torch.sigmoid(x), y)\\n"
assert not fixed("import torch\\nimport torch.nn.functional as F\\nF.binary_cross_entropy" + call, 3)
named = "import torch\\nfrom torch.nn.functional import binary_cross_entropy\\n"
assert fixed(named + "binary_cross_entropy" + call, 3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
