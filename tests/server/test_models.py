"""The language server on models: what a trace says at the callable, and when one is made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pygls")
pytest.importorskip("torch")

from editor import Editor
from lsprotocol import types

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(1000, 4001)
        self.out = nn.Linear(4001, 1000)

    def forward(self, x):
        return self.out(torch.relu(self.wide(x)))


def example_inputs():
    return torch.empty(4096, 1000)
"""
LINE = NET.splitlines().index("        self.out = nn.Linear(4001, 1000)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "net.py").write_text(NET)
    # A trace of a file that changed while it was made is not kept.
    os.utime(folder / "net.py", (1_700_000_000, 1_700_000_000))
    return folder


@pytest.fixture(scope="module")
def traced(folder: Path, python_m_tclint: list[str]) -> Iterator[Editor]:
    """A session in which the user has asked for one trace."""
    editor = Editor(folder, tclint=python_m_tclint)
    assert editor.open("net.py") == []
    (lens,) = editor.lenses("net.py")
    assert lens.command is not None
    assert lens.range.start.line == NET.splitlines().index("class Net(nn.Module):")
    assert lens.command.title == "tclint: trace this model"
    assert not editor.progress, "nothing is run because a file was opened"
    editor.execute(lens.command.command, *(lens.command.arguments or ()))
    editor.until(lambda: editor.messages, "the end of the trace")
    yield editor
    editor.quit()


def title(editor: Editor) -> str:
    (lens,) = editor.lenses("net.py")
    assert lens.command is not None
    return lens.command.title


def of_models(found: list[types.Diagnostic]) -> dict[str, int]:
    return {str(one.code): one.range.start.line for one in found if str(one.code).startswith("DIM001")}


def test_a_trace_on_request_shows_time_and_findings(traced: Editor) -> None:
    (said,) = traced.messages
    assert said.type == types.MessageType.Info
    assert said.message.startswith("net.py:Net: ")
    assert " on a100-sxm4-80gb (+-" in said.message
    assert title(traced) == said.message.replace("net.py:Net", "tclint")
    kinds = [one["kind"] if isinstance(one, dict) else one.kind for one in traced.progress]
    assert kinds == ["begin", "end"]
    assert traced.refreshed
    found = traced.diagnostics("net.py")
    assert of_models(found) == {"DIM001": LINE}
    (finding,) = (one for one in found if one.code == "DIM001")
    assert "Predicted gain per step: a100-sxm4-80gb" in finding.message
    assert "## DIM001" in traced.hover("net.py", LINE, 22)


def test_findings_follow_their_lines_and_leave_with_them(traced: Editor) -> None:
    try:
        traced.change("net.py", "# a new line\n" + NET)
        assert of_models(traced.diagnostics("net.py")) == {"DIM001": LINE + 1}
        assert title(traced).startswith("tclint: before the last change ")
        traced.change("net.py", NET.replace("nn.Linear(4001, 1000)", "nn.Linear(4000, 1000)"))
        assert of_models(traced.diagnostics("net.py")) == {}
    finally:
        traced.change("net.py", NET)
    assert of_models(traced.diagnostics("net.py")) == {"DIM001": LINE}
    assert not title(traced).startswith("tclint: before")


def test_a_new_session_knows_it_from_the_cache_and_traces_on_save_if_asked(
    traced: Editor, folder: Path, python_m_tclint: list[str]
) -> None:
    known = title(traced)
    editor = Editor(folder, tclint=python_m_tclint, traceOnSave=True)
    try:
        editor.open("net.py")
        assert title(editor) == "tclint: trace this model", "the answer does not wait for the lookup"
        editor.until(lambda: title(editor) == known, "the trace in the cache")
        assert of_models(editor.diagnostics("net.py")) == {"DIM001": LINE}
        assert not editor.progress, "it was looked up, not traced"
        editor.save("net.py", NET.replace("4001", "4000"))
        editor.until(lambda: len(editor.progress) == 2, "the trace after the save")
        assert title(editor) not in (known, "tclint: tracing")
        assert "DIM001" not in of_models(editor.diagnostics("net.py"))
        assert editor.messages == [], "who asked for no trace is told nothing in a window"
    finally:
        editor.quit()
        (folder / "net.py").write_text(NET)


def test_without_the_option_saving_traces_nothing(traced: Editor) -> None:
    begun = len(traced.progress)
    traced.save("net.py", NET + "# saved\n")
    traced.diagnostics("net.py")
    assert title(traced).startswith("tclint: before the last change ")
    assert len(traced.progress) == begun


def test_a_class_is_made_as_its_project_makes_it(tmp_path: Path, python_m_tclint: list[str]) -> None:
    needing = NET.replace("def __init__(self)", "def __init__(self, width)").replace("4001", "width")
    (tmp_path / "net.py").write_text(needing)
    (tmp_path / "train.py").write_text("from net import Net\n\nnet = Net(4001)\n")
    (tmp_path / "pyproject.toml").touch()
    editor = Editor(tmp_path, tclint=python_m_tclint)
    try:
        editor.open("net.py")
        (lens,) = editor.lenses("net.py")
        assert lens.command is not None
        editor.execute(lens.command.command, *(lens.command.arguments or ()))
        editor.until(lambda: editor.messages, "the end of the trace")
        assert editor.messages[0].message.startswith("net.py:Net: ")
        assert of_models(editor.diagnostics("net.py"))
    finally:
        editor.quit()
