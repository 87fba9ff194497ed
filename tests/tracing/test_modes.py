"""In which mode a model is traced: as built for training, after `eval()` for inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tclint.config.settings import Settings
from tclint.engine.caches import TraceCache
from tclint.graph.ops import Graph
from tclint.tracing import trace_targets

NET = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(0.5)
        self.for_training = nn.Linear(32, 64)
        self.for_inference = nn.Linear(32, 128)

    def forward(self, x):
        x = self.drop(self.norm(self.first(x)))
        return self.for_training(x) if self.training else self.for_inference(x)

def build():
    return Net(), torch.zeros(8, 16)

def build_in_eval():
    return Net().eval(), torch.zeros(8, 16)

class Stubborn(Net):
    def train(self, mode=True):
        if not mode:
            raise RuntimeError("this one never rests")
        return super().train(mode)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def traced(target: str, mode: Any) -> Graph:
    (result,) = trace_targets([target], Settings(mode=mode))
    assert result.graph is not None, result.error
    return result.graph


def widths(graph: Graph) -> list[int]:
    return [op.outputs[0].shape[-1] for op in graph.ops if op.kind == "linear"]


def norm_trains(graph: Graph) -> bool:
    (norm,) = (op for op in graph.ops if op.kind == "norm")
    return bool(norm.attributes["training"])


def test_infer_traces_after_eval_and_train_what_was_built(folder: Path) -> None:
    assert widths(traced("net.py:build", "infer")) == [32, 128]
    assert not norm_trains(traced("net.py:build", "infer"))
    assert widths(traced("net.py:build", "train")) == [32, 64]
    assert norm_trains(traced("net.py:build", "train"))
    assert widths(traced("net.py:build_in_eval", "train")) == [32, 128]
    assert traced("net.py:build", "infer").metadata["training"] is False


def test_an_eval_that_fails_is_told_in_one_sentence(folder: Path) -> None:
    (result,) = trace_targets(["net.py:Stubborn"], Settings(mode="infer"))
    assert str(result.error) == "Stubborn.eval() raised RuntimeError: this one never rests (net.py:26)."


def test_a_trace_kept_from_training_is_not_taken_for_inference(folder: Path) -> None:
    cache = TraceCache(str(folder))
    for mode, expected in (("train", [32, 64]), ("infer", [32, 128]), ("train", [32, 64])):
        (result,) = cache.trace(["net.py:build"], Settings(mode=mode))  # type: ignore[arg-type]
        assert result.graph is not None
        assert widths(result.graph) == expected
