"""What an edited model may have that the plan did not speak of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tclint
from tclint.analysis.change import Change
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


def proof(graph: Graph, change: Change | None = None, level: str = "warning") -> Proof:
    """The proof of an edited model that has one finding, with that change."""
    location = SimpleNamespace(path="a.py", line=1)
    finding: Any = SimpleNamespace(code="X001", name="new", change=change, level=level, location=location)
    times = step_times_us(GraphContext(graph, SETTINGS, "t"))
    context = GraphContext(traced(2052), SETTINGS, "t")
    return Proof("t", (), SETTINGS, context, frozenset(), [graph, {"key": finding}, times])


def times(graph: Graph, factor: float = 1.0) -> dict[str, float]:
    found = step_times_us(GraphContext(graph, SETTINGS, "t"))
    return {gpu: factor * time_us for gpu, time_us in found.items()}


def test_a_new_finding_is_told_and_stops_no_fix() -> None:
    padded = traced(2056)
    one = proof(padded, Change(edit=lambda graph: graph))
    assert one.problem(padded, (), one.step_time_us) is None
    assert list(one.told(padded, times(padded))) == ["X001 new at a.py:1 is new with it"]
    error = proof(padded, level="error").problem(padded, (), one.step_time_us)
    assert error == "it makes an error of its own: X001 new at a.py:1"


def test_a_fix_that_gained_as_much_before_is_not_new() -> None:
    padded, other = traced(2056), traced(2056, activations=4)
    assert list(proof(padded, Change(settings={"compiled": True})).told(padded, times(padded))) == []
    assert len(list(proof(padded, None).told(padded, times(padded)))) == 1
    assert len(list(proof(other, Change(settings={"compiled": True})).told(other, times(other)))) == 1


def test_a_longer_step_is_no_fix_and_another_gain_is_told() -> None:
    graph = traced(2056)
    one = Proof("t", (), SETTINGS, GraphContext(traced(2052), SETTINGS, "t"), frozenset())
    assert one.problem(graph, (), times(graph, 1.01)) is None
    assert "step is no shorter" in (one.problem(graph, (), times(graph)) or "")
    assert "step is no shorter" in (one.problem(graph, (), times(graph, 0.9)) or "")
    assert list(one.told(graph, times(graph))) == []
    (shorter,) = one.told(graph, times(graph, 1.5))
    assert "shorter than the fix alone would make it" in shorter
    (longer,) = one.told(graph, times(graph, 0.5))
    assert "longer than the fix alone would make it" in longer


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
