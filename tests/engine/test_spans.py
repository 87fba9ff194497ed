"""Places of findings on models: the columns of what is called on their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.core.finding import Finding, Location, Related
from tclint.engine.spans import Spans

SOURCE = """\
class Net(nn.Module, metaclass=meta()):
    def __init__(self, size=int(3)):
        self.größe = nn.Linear(int(768), 50257)  # note
        self.body = nn.Sequential(
            nn.Conv2d(3, 30, 3),
            nn.ReLU(
            ),
        )
    def forward(self, x):
        y = self.act(self.body(x))
        y = x @ self.weight @ y
        y = y + 1  # a comment
        for _ in y:

            pass
"""


def placed(path: Path, line: int) -> tuple[int, int, int | None, int | None]:
    place = Location(str(path), line)
    finding = Finding("X001", "x", "info", "high", "m", place, related=(Related(place, "there"),))
    shown = Spans().with_columns(finding)
    assert shown.related[0].location == shown.location
    location = shown.location
    return location.line, location.column, location.end_line, location.end_column


def text_at(path: Path, line: int) -> str:
    line, column, end_line, end_column = placed(path, line)
    assert end_line is not None
    lines = path.read_text(encoding="utf-8").split("\n")[line - 1 : end_line]
    lines[-1] = lines[-1][: None if end_column is None else end_column - 1]
    lines[0] = lines[0][column - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (1, "class Net(nn.Module, metaclass=meta()):"),
        (2, "def __init__(self, size=int(3)):"),
        (3, "nn.Linear(int(768), 50257)"),
        (5, "nn.Conv2d(3, 30, 3)"),
        (6, "nn.ReLU(\n            )"),
        (10, "self.act(self.body(x))"),
        (11, "x @ self.weight @ y"),
        (12, "y = y + 1"),
        (13, "for _ in y:"),
    ],
)
def test_what_is_called_on_the_line(tmp_path: Path, line: int, text: str) -> None:
    (tmp_path / "net.py").write_text(SOURCE, encoding="utf-8")
    assert text_at(tmp_path / "net.py", line) == text


@pytest.mark.parametrize("line", [14, 99])
def test_a_line_that_holds_nothing_stays_a_line(tmp_path: Path, line: int) -> None:
    (tmp_path / "net.py").write_text(SOURCE, encoding="utf-8")
    assert placed(tmp_path / "net.py", line) == (line, 1, None, None)


@pytest.mark.parametrize("content", [None, b"def f(:\n", b"x = '\xff'\n", b"a\0b"])
def test_files_that_cannot_be_read_leave_the_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "net.py").write_bytes(content)
    assert placed(tmp_path / "net.py", 1) == (1, 1, None, None)


def test_columns_that_are_known_stay(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(SOURCE, encoding="utf-8")
    known = Finding("X001", "x", "info", "high", "m", Location(str(tmp_path / "net.py"), 3, 5, 3, 9))
    assert Spans().with_columns(known) == known
