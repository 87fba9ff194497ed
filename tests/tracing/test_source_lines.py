"""Source that a library reads of itself is not kept; what cannot be read again is."""

from __future__ import annotations

import inspect
import linecache
from pathlib import Path

import pytest
from torch import Tensor, nn

import tclint
from tclint.tracing.values.source_lines import forgotten_source_lines


class _ReadsItsSource(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        assert "def getsource" in inspect.getsource(inspect)
        self.layer = nn.Linear(4, 4)
        self.reads = inspect.__file__ in linecache.cache

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    linecache.clearcache()


def test_of_a_constructor() -> None:
    built: list[_ReadsItsSource] = []
    graph = tclint.trace(lambda: built.append(_ReadsItsSource()) or built[0])
    assert len(graph.ops) == 1
    assert built[0].reads
    assert inspect.__file__ not in linecache.cache


def test_what_was_known_before_stays(tmp_path: Path) -> None:
    known, new = tmp_path / "known.py", tmp_path / "new.py"
    for path in (known, new):
        path.write_text("first\nsecond\n", encoding="utf-8")
    assert linecache.getline(str(known), 1) == "first\n"
    with forgotten_source_lines():
        assert linecache.getline(str(new), 2) == "second\n"
    assert str(known) in linecache.cache
    assert str(new) not in linecache.cache


def test_a_notebooks_cell_stays() -> None:
    with forgotten_source_lines():
        linecache.cache["<cell 3>"] = (6, None, ["x = 1\n"], "<cell 3>")
    assert linecache.getline("<cell 3>", 1) == "x = 1\n"


def test_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text("first\n", encoding="utf-8")
    with pytest.raises(KeyError), forgotten_source_lines():
        raise KeyError(linecache.getline(str(path), 1))
    assert str(path) not in linecache.cache
