"""What an edited model may have that the plan did not speak of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tclint
from tclint.analysis.change import COMPILED, Change
from tclint.analysis.graph_context import GraphContext
from tclint.config.settings import Settings
from tclint.engine.fixes.planner import _Planner
from tclint.engine.fixes.proof import Proof, key_of, other_interface, step_times_us
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
    assert problem(padded, COMPILED) is None
    assert problem(padded, Change(edit=lambda graph: graph)) == "X001 new would be new at a.py:1: m"
    assert problem(padded, None) == "X001 new would be new at a.py:1: m"
    assert problem(other, COMPILED) == "X001 new would be new at a.py:1: m"


def test_more_than_planned_is_as_good_only_where_it_may_be() -> None:
    graph = traced(2056)
    times = step_times_us(GraphContext(graph, SETTINGS, "t"))
    slower = {gpu: 1.5 * time_us for gpu, time_us in times.items()}
    proof = Proof("t", (), SETTINGS, GraphContext(traced(2052), SETTINGS, "t"), frozenset())
    assert "was planned" in (proof.problem(graph, (), slower) or "")
    assert proof.problem(graph, (), slower, may_gain_more=True) is None
    faster = {gpu: 0.5 * time_us for gpu, time_us in times.items()}
    assert "was planned" in (proof.problem(graph, (), faster, may_gain_more=True) or "")
    assert proof.unplanned_us(graph, slower) == {gpu: times[gpu] - slower[gpu] for gpu in times}
    assert proof.unplanned_us(graph, times) == {}


def test_an_edit_that_leaves_a_weight_unread_is_refused() -> None:
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, skipped: bool) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
            self.skipped = skipped

        def forward(self, x: Any) -> Any:
            return self.first(x) if self.skipped else self.second(self.first(x))

    whole, less = (tclint.trace(Net(skipped), torch.empty(4, 8)) for skipped in (False, True))
    assert other_interface(whole, whole) is None
    assert other_interface(whole, less) == "the edited model no longer reads second.bias"
    # It is still built, so the edit is not the fix that takes it away.
    assert "second.bias" in (other_interface(whole, less, {"second.bias", "second.weight"}) or "")


def test_a_finding_that_gained_too_little_before_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = "nn.Linear(640, 2600), nn.Linear(2600, 640)"
    text = f"from torch import nn\ndef build(): return nn.Sequential({layers})\n"
    (tmp_path / "model.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    settings = Settings(gpus=("a100",), select=("DIM011",), inputs=("4096,640",), min_gain_percent=90.0)
    report = tclint.check(["model.py:build"], settings)
    # The rule itself asks for the least gain, so that there is nothing to list, not even below it.
    assert not report.findings
    assert not report.below_min_gain
    known = _Planner(report, report.entries[0], "model.py:build", None)._proof.known
    listed = tclint.check(["model.py:build"], replace(settings, min_gain_percent=0.0)).findings
    assert listed
    assert {key_of(finding) for finding in listed} <= known
