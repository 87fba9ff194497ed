"""What the condition that a line asks guards is told from the source around it."""

from __future__ import annotations

import linecache
import sys
import textwrap
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tclint.tracing.values.branch_policy import Guard, extremum_at, guard_at


class _Asked:
    """Remembers what is told of the line that asks it, and answers no."""

    def __init__(self) -> None:
        self.guard: Guard | None = None
        self.extremum = ""

    def any(self) -> bool:
        return self._told(sys._getframe(1))

    def __gt__(self, other: object) -> bool:
        return self._told(sys._getframe(1))

    def _told(self, frame: FrameType) -> bool:
        self.guard, self.extremum = guard_at(frame), extremum_at(frame)
        return False


def _asked(path: Path, body: str) -> _Asked:
    """What the function `f(x, y)` of that body asks first."""
    source = f"def f(x, y):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    path.write_text(source, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), names)
    asked = _Asked()
    names["f"](asked, [])
    return asked


@pytest.mark.parametrize(
    ("body", "leaves"),
    [
        ("if x.any(): return 1", "return"),
        ("if x.any(): y = 1; return y", "return"),
        ("if x.any():  # why\n    y = 1\n    # done\n    raise y", "raise"),
        ("if x.any(): return 1\nelse: return 2", ""),
        ("if x.any():\n    return 1\nelif y:\n    z = 1", ""),
        ("if x.any():\n    for _ in x:\n        return 1", ""),
        ("if x.any():\n    try:\n        return 1\n    finally:\n        pass", ""),
        ("if (y or\n        x.any()):\n    return 1", "return"),
        ("if y:\n    pass\nelif x.any():\n    return 1\nreturn 2", "return"),
        ("for _ in range(2):\n    if x.any(): break", "break"),
        ("while True:\n    if x.any(): break\n    break", ""),
        (
            "for _ in range(2):\n    with open('/dev/null'):\n        if x.any():\n            continue",
            "continue",
        ),
        ("for _ in range(2):\n    pass\nelse:\n    for _ in range(2):\n        if x.any(): break", "break"),
        ("assert not x.any()", "assert"),
        ("z = 1; assert not x.any(), 'why'", "assert"),
        ("match y:\n    case []:\n        if x.any(): return 1", "return"),
    ],
)
def test_how_a_condition_leaves(tmp_path: Path, body: str, leaves: str) -> None:
    guard = _asked(tmp_path / "module.py", body).guard
    assert guard is not None
    assert guard.leaves == leaves


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        ("while True:\n    if x.any(): y = f(x)\n    break", True),
        ("for _ in range(2):\n    if x.any(): y = f(x)", False),
        ("while y:\n    pass\nelse:\n    if x.any(): y = f(x)", False),
        ("while True:\n    def g():\n        if x.any(): y = f(x)\n    g()\n    break", False),
    ],
)
def test_a_loop_that_may_wait(tmp_path: Path, body: str, waits: bool) -> None:
    guard = _asked(tmp_path / "module.py", body).guard
    assert guard is not None
    assert guard.may_wait == waits


@pytest.mark.parametrize(
    "body",
    [
        "z = x.any()",
        "if (1 if x.any() else 0): return 1",
        "for z in [x.any()]: pass",
        "return (lambda: x.any())()",
    ],
)
def test_what_is_not_clear(tmp_path: Path, body: str) -> None:
    assert _asked(tmp_path / "module.py", body).guard is None


def test_a_choice_calls_what_it_chooses(tmp_path: Path) -> None:
    guard = _asked(tmp_path / "module.py", "return (\n    f(x)\n    if x.any()\n    else str(y)\n)").guard
    assert guard is not None
    assert [len(guard.body_calls), len(guard.else_calls)] == [1, 1]


@pytest.mark.parametrize(("body", "name"), [("max(0, x)", "max"), ("min(x, 0)", "min"), ("max([0, x])", "")])
def test_an_extremum(tmp_path: Path, body: str, name: str) -> None:
    assert _asked(tmp_path / "module.py", body).extremum == name


def test_without_source_nothing_is_told(tmp_path: Path) -> None:
    linecache.clearcache()
    names: dict[str, Any] = {}
    exec(compile("def f(x):\n    if x.any(): return 1\n", str(tmp_path / "gone.py"), "exec"), names)
    asked = _Asked()
    names["f"](asked)
    assert asked.guard is None
