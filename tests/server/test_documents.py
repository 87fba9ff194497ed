"""The language server on sources, through real messages to the real process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pygls")

from canary import Canaries
from editor import CAPABILITIES, Editor, applied
from lsprotocol import types

from tclint.server.session import DEBOUNCE_S

BEFORE = """\
import torch
from torch.nn.utils import clip_grad_norm_

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(batch)
    scaler.scale(loss).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
AFTER = BEFORE.replace("    clip", "    scaler.unscale_(optimizer)\n    clip")
TWO = BEFORE.replace('torch.amp.GradScaler("cuda")', "torch.cuda.amp.GradScaler()")
UNSAFE = "import torch\n\ntorch.backends.cudnn.benchmark = False\nmodel = build().cuda()\n"
EVERYWHERE = types.Range(types.Position(0, 0), types.Position(100, 0))


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory, python_m_tclint: list[str]) -> Iterator[Editor]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "old").mkdir()
    (folder / "pyproject.toml").write_text('[tool.tclint]\nexclude = ["third_party/"]\nignore = ["RUN002"]\n')
    (folder / "old" / "pyproject.toml").write_text('[tool.tclint]\nignore = ["AMP003"]\n')
    session = Editor(folder, tclint=python_m_tclint)
    yield session
    session.quit()
    assert session.returncode == 0
    assert session.messages == [], "nothing popped up that no test asked for"


def codes(found: list[types.Diagnostic]) -> list[str]:
    return [str(diagnostic.code) for diagnostic in found]


def test_findings_on_opening_typing_and_closing(editor: Editor) -> None:
    (found,) = editor.open("a.py", BEFORE)
    assert (found.code, found.source, found.severity) == ("AMP003", "tclint", types.DiagnosticSeverity.Error)
    assert found.range == types.Range(types.Position(8, 4), types.Position(8, 44))
    assert found.message.startswith("Gradients are clipped here")
    editor.change("a.py", AFTER)
    assert editor.diagnostics("a.py") == []
    editor.change("a.py", "\n\n" + BEFORE)
    assert [one.range.start.line for one in editor.diagnostics("a.py")] == [10]
    editor.close("a.py")
    editor.until(lambda: not editor.published[editor.uri("a.py")].diagnostics, "no diagnostics")


def test_what_is_typed_is_read_after_a_pause(editor: Editor) -> None:
    editor.open("fast.py", BEFORE)
    started = time.monotonic()
    editor.change("fast.py", AFTER)
    assert editor.diagnostics("fast.py") == []
    assert time.monotonic() - started >= 0.9 * DEBOUNCE_S


def test_a_file_that_is_being_typed_is_broken_for_a_while(editor: Editor) -> None:
    (found,) = editor.open("broken.py", BEFORE + "x = (\n")
    assert found.code == "TCL003"
    editor.change("broken.py", AFTER)
    assert editor.diagnostics("broken.py") == []


def test_a_half_typed_line_hides_no_other_findings(editor: Editor) -> None:
    (before,) = editor.open("half.py", BEFORE)
    editor.change("half.py", "import (\n" + BEFORE)
    broken, kept = editor.diagnostics("half.py")
    assert broken.code == "TCL003"
    assert kept.message == before.message
    assert kept.range.start.line == before.range.start.line + 1
    fixes = editor.actions("half.py", kept.range, [types.CodeActionKind.QuickFix])
    assert all(one.title == "AMP003: ignore this line" for one in fixes), "its edits are of the earlier text"
    editor.change("half.py", "import (\n" + BEFORE.replace("clip_grad_norm_(model", "clip_grad_norm_((model"))
    assert codes(editor.diagnostics("half.py")) == ["TCL003"], "the finding's own line has changed"
    editor.change("half.py", AFTER)
    assert editor.diagnostics("half.py") == []


def test_a_quick_fix_makes_the_file_right(editor: Editor) -> None:
    found = {str(one.code): one for one in editor.open("b.py", TWO)}
    assert sorted(found) == ["AMP003", "AMP014"], "two mistakes are seen"
    cursor = types.Position(found["AMP003"].range.start.line, 0)
    action, _ = editor.actions("b.py", types.Range(cursor, cursor), [types.CodeActionKind.QuickFix])
    assert action.title == "AMP003: Call `scaler.unscale_(optimizer)` first."
    assert (action.is_preferred, action.kind) == (True, types.CodeActionKind.QuickFix)
    assert [one.code for one in action.diagnostics or ()] == ["AMP003"]
    text = applied(TWO, action)
    assert text == AFTER.replace(BEFORE.splitlines()[3], TWO.splitlines()[3])
    editor.change("b.py", text)
    action, _ = editor.actions("b.py", EVERYWHERE, [types.CodeActionKind.QuickFix])
    assert action.title.startswith("AMP014"), "of the text as it is, though nobody waited for it to be read"
    assert codes(editor.diagnostics("b.py")) == ["AMP014"]


def test_a_line_can_be_ignored(editor: Editor) -> None:
    found = {str(one.code): one for one in editor.open("i.py", TWO)}
    *_, action = editor.actions("i.py", found["AMP003"].range, [types.CodeActionKind.QuickFix])
    assert (action.title, action.is_preferred) == ("AMP003: ignore this line", None)
    assert [one.code for one in action.diagnostics or ()] == ["AMP003"]
    text = applied(TWO, action)
    line = found["AMP003"].range.start.line
    assert text.splitlines()[line] == TWO.splitlines()[line] + "  # tclint: ignore[AMP003]"
    editor.change("i.py", text)
    assert codes(editor.diagnostics("i.py")) == ["AMP014"]


def test_all_safe_fixes_at_once_are_worked_out_when_asked_for(editor: Editor) -> None:
    editor.open("c.py", TWO)
    (action,) = editor.actions("c.py", EVERYWHERE, ["source.fixAll"])
    assert (action.kind, action.edit) == ("source.fixAll.tclint", None)
    resolved = editor.do(editor.client.code_action_resolve_async(action))
    assert applied(TWO, resolved) == AFTER
    assert editor.actions("c.py", EVERYWHERE, ["source.organizeImports"]) == []
    editor.change("c.py", AFTER)
    assert editor.actions("c.py", EVERYWHERE) == [], "nothing to fix"


def test_unsafe_fixes_say_so_and_are_never_made_with_the_others(editor: Editor) -> None:
    editor.open("old/d.py", UNSAFE)
    action, _ = editor.actions("old/d.py", EVERYWHERE)
    assert action.title.startswith("RUN002 (unsafe fix): ")
    assert action.is_preferred is False
    assert "benchmark = True" in applied(UNSAFE, action)


def test_every_file_has_the_settings_of_its_own_project(editor: Editor) -> None:
    assert codes(editor.open("e.py", BEFORE + UNSAFE)) == ["AMP003"]
    assert codes(editor.open("old/e.py", BEFORE + UNSAFE)) == ["RUN002"]
    assert editor.open("third_party/e.py", BEFORE) == []


def test_columns_are_those_of_the_editor(editor: Editor) -> None:
    text = TWO.replace("scaler = ", '_ = "\U0001f600\u00e9"; scaler = ')
    found = {str(one.code): one.range for one in editor.open("f.py", text)}
    start = text.splitlines()[3].index("torch") + 1  # the face takes two units of UTF-16
    assert found["AMP014"].start == types.Position(3, start)
    action, _ = editor.actions("f.py", found["AMP014"], [types.CodeActionKind.QuickFix])
    assert '_ = "\U0001f600\u00e9"; scaler = torch.amp.GradScaler("cuda")\n' in applied(text, action)


def test_form_feeds_end_no_line_and_encodings_are_those_of_the_file(editor: Editor) -> None:
    text = "# -*- coding: latin-1 -*-\n# \u00e9\x0c\u00e9\n" + BEFORE
    assert [one.range.start.line for one in editor.open("g.py", text)] == [10]
    editor.change("g.py", text + "\x0c\n")
    assert [one.range.start.line for one in editor.diagnostics("g.py")] == [10]


def test_hovering_shows_the_finding_and_the_page_of_its_rule(editor: Editor) -> None:
    editor.open("h.py", BEFORE + "x = 1  # tclint: ignore[DIM001] not ours\n")
    shown = editor.hover("h.py", 8, 6)
    assert shown.index("Gradients are clipped") < shown.index("## AMP003") < shown.index("## What it does")
    assert "Fix: Call `scaler.unscale_(optimizer)` first." in shown
    assert editor.hover("h.py", 0, 3) == ""
    assert editor.hover("h.py", 11, 27).startswith("## DIM001 linear-misaligned"), "a code in a comment"


def test_scripts_without_an_ending_and_new_files(editor: Editor) -> None:
    assert codes(editor.open("run", BEFORE)) == ["AMP003"]
    document = types.TextDocumentItem("untitled:Untitled-1", types.LanguageKind.Python, 1, BEFORE)
    editor.client.text_document_did_open(types.DidOpenTextDocumentParams(document))
    found = editor.until(lambda: editor.published.get("untitled:Untitled-1"))
    assert codes(found.diagnostics) == ["AMP003"]


def test_flags_options_and_clients_that_resolve_nothing(tmp_path: Path, python_m_tclint: list[str]) -> None:
    plain = types.ClientCapabilities()
    editor = Editor(tmp_path, "--ignore", "AMP003", tclint=python_m_tclint, capabilities=plain)
    try:
        assert codes(editor.open("a.py", TWO)) == ["AMP014"]
        (action,) = editor.actions("a.py", EVERYWHERE, ["source.fixAll.tclint"])
        assert applied(TWO, action) == BEFORE, "a client that cannot resolve is given the edits at once"
        (tmp_path / "pyproject.toml").write_text('[tool.tclint]\nselectt = ["AMP"]\n')
        assert editor.open("b.py", BEFORE) == []
        assert editor.open("c.py", BEFORE) == []
        (said,) = editor.messages
        assert "pyproject.toml:2: 'selectt' is not a key" in said.message, "said once"
        assert plain != CAPABILITIES
    finally:
        editor.quit()


@pytest.mark.parametrize("options", ["", "force-exclude = true"])
def test_a_failure_of_tclint_itself_is_shown(tmp_path: Path, options: str) -> None:
    started = (
        "import tclint.cli.main, tclint.source.run.program as program\n"
        "program.run = lambda *_: 1 / 0\n"
        "tclint.cli.main.main()\n"
    )
    (tmp_path / "pyproject.toml").write_text(f"[tool.tclint]\n{options}\n")
    editor = Editor(tmp_path, tclint=[sys.executable, "-c", started])
    try:
        assert editor.open("a.py", BEFORE) == []
        (said,) = editor.until(lambda: editor.messages)
        assert "a.py could not be linted: tclint failed on it with ZeroDivisionError" in said.message
    finally:
        editor.quit()


def test_opening_typing_and_saving_run_nothing_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    canaries = Canaries(tmp_path / "project", tmp_path / "marks")
    session = Editor(canaries.folder)
    canaries.ran()
    for name in ("train.py", "vendor/lib/train.py", "vendor/lib/net.py"):
        text = (canaries.folder / name).read_text()
        found = session.open(name)
        assert ("AMP014" in codes(found)) == name.endswith("train.py")
        session.save(name, text + "\n")
        session.diagnostics(name)
        session.hover(name, 2, 15)
        for action in session.actions(name, EVERYWHERE):
            if action.edit is None:
                session.do(session.client.code_action_resolve_async(action))
        assert session.lenses(name) == []
    said = [message.message for message in session.messages]
    for what in ("names local rules", "declares 1 model"):
        assert sum(what in one for one in said) == 1, said
    assert all("vendor/lib/pyproject.toml" in one for one in said)
    session.quit()
    assert canaries.ran() == set()
