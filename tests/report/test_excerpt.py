"""The source line under a finding, and the carets under the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tclint.core.finding import Location
from tclint.core.text import columns
from tclint.report.excerpt import SourceLines, excerpt


def shown(source: str, location: Location, width: int = 76) -> list[str]:
    lines = SourceLines({location.path: source.split("\n")})
    return excerpt(location, lines, width)


def marked(lines: list[str]) -> str:
    """What stands above the carets (ASCII only)."""
    return "".join(above for above, below in zip(*lines, strict=False) if below == "^")


def test_span_is_underlined() -> None:
    lines = shown("x = f(a, b)", Location("m.py", 1, 5, 1, 12))
    assert lines == ["1 | x = f(a, b)", "  |     ^^^^^^^"]


def test_without_a_column_the_first_character_is_marked() -> None:
    assert marked(shown("    return x", Location("m.py", 1))) == "r"


def test_tabs_and_wide_characters_keep_the_caret_in_place() -> None:
    lines = shown("\tf('漢字', 1)", Location("m.py", 1, 10, 1, 11))
    assert lines[0] == "1 |     f('漢字', 1)"
    assert columns(lines[0].split("1)")[0]) == lines[1].index("^")


def test_multi_line_span_is_marked_to_the_line_end() -> None:
    assert marked(shown("a = f(\n  b)", Location("m.py", 1, 5, 2, 4))) == "f("


def test_long_line_is_cut_around_the_place() -> None:
    source = "x = [" + "1, " * 100 + "BAD, " + "2, " * 100 + "]"
    column = source.index("BAD") + 1
    lines = shown(source, Location("m.py", 1, column, 1, column + 3))
    assert marked(lines) == "BAD"
    assert max(map(len, lines)) <= 76
    assert lines[0].startswith("1 | ...")
    assert lines[0].endswith("...")


@pytest.mark.parametrize("line", [0, 3])
def test_no_excerpt_outside_the_file_or_of_a_blank_line(line: int) -> None:
    assert shown("a\n ", Location("m.py", line)) == []
    assert shown("a\n ", Location("m.py", 2)) == []


def test_lines_are_what_python_counts_as_lines(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_bytes(b"a = '\x0c \xe2\x80\xa8'\r\nb = 1\rc = 2\n")
    lines = SourceLines()
    assert [lines.line(str(file), number) for number in (2, 3)] == ["b = 1", "c = 2"]


def test_undecodable_and_missing_files(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_bytes(b"x = '\xff'\n")
    assert SourceLines().line(str(file), 1) == "x = '\ufffd'"
    assert SourceLines().line(str(tmp_path / "none.py"), 1) is None
    assert SourceLines().line(str(tmp_path), 1) is None
    assert SourceLines().line("bad\0name", 1) is None


@settings(deadline=None)
@given(
    source=st.text(alphabet=st.one_of(st.sampled_from("\t ab\x1b漢e\u0301"), st.characters()), max_size=300),
    column=st.integers(1, 400),
    length=st.integers(1, 100) | st.none(),
    width=st.integers(40, 100),
)
def test_any_line_fits_and_is_printable(source: str, column: int, length: int | None, width: int) -> None:
    end = None if length is None else column + length
    lines = shown(source.replace("\n", " "), Location("m.py", 1, column, 1, end), width)
    assert all(line.isprintable() and columns(line) <= width for line in lines)
    if lines:
        assert "^" in lines[1]
