"""Safe text, atomic writes and the progress line."""

from __future__ import annotations

import io
import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tclint.core.errors import UsageError
from tclint.core.files import check_writable, write_atomically
from tclint.core.terminal import ProgressLine, hyperlink, report_width, wants_colour, wants_links
from tclint.core.text import columns, printable


@given(st.text(st.characters(categories=None), max_size=40))
def test_printable_text_is_printable_and_says_all(text: str) -> None:
    safe = printable(text)
    assert safe.isprintable()
    assert printable(safe) == safe
    if text.isprintable():
        assert safe == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\x1b[31mred\n", "\\x1b[31mred\\n"),
        ("a\tb\r", "a\\tb\\r"),
        ("\u202eevil", "\\u202eevil"),
        ("caf\udce9", "caf\\udce9"),
        ("\U000e0001", "\\U000e0001"),
        ("größe 漢字", "größe 漢字"),
    ],
)
def test_escapes(text: str, safe: str) -> None:
    assert printable(text) == safe


def test_columns_of_wide_and_combining_characters() -> None:
    assert (columns("abc"), columns("漢字"), columns("e\u0301")) == (3, 4, 1)


def test_write_replaces_and_keeps_permissions(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")
    file.chmod(0o640)
    write_atomically(str(file), "new ü\n")
    assert file.read_bytes() == "new ü\n".encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_atomically(str(tmp_path / "new"), "")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UsageError, match="No space left on device"):
        write_atomically(str(file), "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_device_is_written_to_not_replaced() -> None:
    write_atomically(os.devnull, "x")
    check_writable(os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_unwritable_places_are_found_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="it is a folder"):
        check_writable(str(tmp_path))
    with pytest.raises(UsageError, match="does not exist"):
        check_writable(str(tmp_path / "none" / "x"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="no permission"):
        check_writable(str(tmp_path / "x"))


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(screen: Screen, text: str) -> None:
    deadline_s = time.monotonic() + 10
    while text not in screen.getvalue() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert text in screen.getvalue()


def test_progress_shows_what_takes_long_and_wipes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    with ProgressLine(screen, after_s=0.01) as progress:
        progress("tracing model.py:build\x1b[2J")
        wait_for(screen, "tracing model.py:build\\x1b[2J (0 s)")
    assert screen.getvalue().endswith("\r\x1b[K")


def test_progress_is_silent_for_quick_work_and_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "dumb")
    with ProgressLine(screen, after_s=0.0) as progress:
        progress("slow, on a terminal without escape sequences")
        time.sleep(0.05)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressLine(screen) as progress:
        progress("quick")
    file = io.StringIO()
    with ProgressLine(file, after_s=0.0) as progress:
        progress("slow")
        time.sleep(0.05)
    assert screen.getvalue() == file.getvalue() == ""


class Terminal(io.StringIO):
    """A stream that says that it is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "links"),
    [
        ({}, False),
        ({"TERM_PROGRAM": "vscode"}, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"VTE_VERSION": "7200"}, True),
        ({"VTE_VERSION": "4800"}, False),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "tmux-256color", "VTE_VERSION": "7200"}, False),
        ({"TERM_PROGRAM": "vscode", "NO_COLOR": "1"}, False),
        ({"TERM_PROGRAM": "vscode", "CI": "true"}, False),
        ({"TERM_PROGRAM": "vscode", "FORCE_HYPERLINK": "0"}, False),
        ({"FORCE_HYPERLINK": "1"}, True),
        ({"TERM_PROGRAM": "vscode", "FORCE_COLOR": "1"}, True),
    ],
)
def test_links_only_where_a_terminal_is_known_to_have_them(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], links: bool
) -> None:
    names = ("CI", "NO_COLOR", "TERM_PROGRAM", "VTE_VERSION", "TMUX", "WT_SESSION", "FORCE_HYPERLINK")
    for name in (*names, "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wants_links(Terminal()) is links
    assert wants_links(io.StringIO()) is (variables.get("FORCE_HYPERLINK") == "1")


@given(st.text(st.characters(categories=None), max_size=40))
def test_a_link_holds_nothing_that_could_end_it(path: str) -> None:
    link = hyperlink("text", path, 3)
    assert link.isascii()
    assert link.count("\x1b") in (0, 4)


@pytest.mark.parametrize(
    ("variables", "no_color", "colour"),
    [
        ({}, False, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": ""}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_force_color_speaks_for_pipes(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], no_color: bool, colour: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wants_colour(io.StringIO(), no_color) is colour


@pytest.mark.parametrize(("columns", "width"), [(20, 40), (72, 72), (100, 100), (300, 120)])
def test_wide_terminals_are_used_up_to_120_columns(
    monkeypatch: pytest.MonkeyPatch, columns: int, width: int
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    monkeypatch.setattr(Terminal, "fileno", lambda _: 1)
    assert report_width(Terminal()) == width


def test_width_without_a_terminal_is_the_usual_one() -> None:
    assert report_width(io.StringIO()) == 80
    assert report_width(Terminal()) == 80
