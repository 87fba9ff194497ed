"""What an edited model may have that the plan did not speak of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tclint
from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.what_if.scenarios import compiled
from tclint.config.settings import Settings
from tclint.engine.fixes.proof import Proof, step_times_us
from tclint.graph.ops import Graph

torch = pytest.importorskip("torch")
SETTINGS = Settings(gpus=("a100",))


def traced(width: int, activations: int = 1) -> Graph:
    nn = torch.nn
    layers = [nn.Linear(512, width), *(nn.GELU() for _ in range(activations)), nn.Linear(width, 512)]
    graph: Graph = tclint.trace(nn.Sequential(*layers), torch.empty(4096, 512))
    return graph


def problem(graph: Graph, change: Change | None) -> str | None:
    """What is said of an edited model that has a finding with that change and no other."""
    finding: Any = SimpleNamespace(
        code="X001", name="new", change=change, message="m", location=SimpleNamespace(path="a.py", line=1)
    )
    times = step_times_us(GraphContext(graph, SETTINGS, "t"))
    context = GraphContext(traced(2052), SETTINGS, "t")
    known = [graph, {"key": finding}, times]
    return Proof("t", (), SETTINGS, context, frozenset(), known).problem(graph, (), times)


def test_a_fix_that_gained_as_much_before_is_not_new() -> None:
    padded, other = traced(2056), traced(2056, activations=4)
    assert problem(padded, Change(scenario=compiled)) is None
    assert problem(padded, Change(edit=lambda graph: graph)) == "X001 new would be new at a.py:1: m"
    assert problem(padded, None) == "X001 new would be new at a.py:1: m"
    assert problem(other, Change(scenario=compiled)) == "X001 new would be new at a.py:1: m"
