"""What keeps an edit of a size from being made: code of the project that would not go along."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tclint.edits.sizes.candidates import Candidate
from tclint.edits.sizes.unrun import UnrunCode
from tclint.edits.sizes.written import Written
from tclint.engine.fixes.bench import Made
from tclint.engine.fixes.resizing import Resizing
from tclint.engine.fixes.search import Found
from tclint.graph.dims.index import DimGroup

MODEL = """\
WIDTH = 500


class Net(nn.Module):
    def __init__(self, width=500):
        super().__init__()
        self.fc = nn.Linear(8, width)


def build():
    return Net(WIDTH)
"""
CONSTANT = Written("/p/model.py", (1, 9), (1, 12), "500", "number", "WIDTH", 500)
DEFAULT = Written("/p/model.py", (5, 30), (5, 33), "500", "number", "width", 500)


def judged(script: str, *written: Written) -> tuple[str | None, Resizing]:
    """What is said of edits that give `fc` 504 outputs, beside a script."""
    unrun = UnrunCode(
        {"/p/model.py": MODEL, "/p/train.py": f"from model import WIDTH, Net, build\n{script}\n"},
        {"/p/model.py"},
        {("/p/model.py", 7)},
        {"build"},
    )
    before, after = (
        SimpleNamespace(parameters=[SimpleNamespace(name="fc.weight", shape=(size, 8))])
        for size in (500, 504)
    )
    bench: Any = SimpleNamespace(unrun=unrun, resized=lambda _: before)
    step: Any = SimpleNamespace(finding=None)
    graph: Any = after
    resizing = Resizing(bench, step, Made((), {}, graph, {}))
    trial = tuple(Candidate(item, "504", 1.0) for item in written)
    found = Found(trial, {DimGroup("d0", 500): 504}, graph, True)
    return resizing._does_not_go_along(found, frozenset({"width"})), resizing


@pytest.mark.parametrize(
    ("script", "written", "reason"),
    [
        ("build().fc(torch.zeros(2, 500))", (CONSTANT,), "the size is also written at "),
        ("n = WIDTH // 10", (CONSTANT,), "WIDTH is read at "),
        ("m = build()\nm.fc.weight.data.copy_(vectors)", (CONSTANT,), "weights of the old size are put into"),
        ("Net(width=args.w)", (CONSTANT, DEFAULT), "width alone is given at "),
    ],
)
def test_code_that_no_trace_ran_may_refuse_an_edit(
    script: str, written: tuple[Written, ...], reason: str
) -> None:
    problem, _ = judged(script, *written)
    assert problem is not None
    assert reason in problem
    assert "train.py:" in problem


def test_other_readers_of_an_edited_size_are_noted() -> None:
    problem, resizing = judged("x = torch.zeros(2, WIDTH)\nNet(7)", CONSTANT)
    assert problem is None
    assert [(note.what, note.line) for note in resizing.notes] == [("also reads WIDTH", 2)]
    problem, resizing = judged("Net(7)", DEFAULT)
    assert problem is None
    assert resizing.is_given_elsewhere
    notes = [(note.what, note.line) for note in resizing.notes]
    assert notes == [("gives width itself, which stays as it is", line) for line in (11, 2)]
