"""Rows that fp8 layers get in training."""

from __future__ import annotations

import pytest
from examples import findings_that_count

import tclint
from tclint.analysis.graph_context import GraphContext
from tclint.config.settings import Mode, Settings
from tclint.engine.rules.registry import load_rules

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("rows", "outputs", "mode", "said"),
    [
        (10, 16, "train", ["10 rows (samples times tokens)"]),
        (10, 16, "infer", []),
        (16, 16, "train", []),
        # Two outputs keep the head in 16 bits, which takes any number of rows.
        (10, 2, "train", ["out_features 2"]),
    ],
)
def test_rows_are_asked_of_layers_that_run_in_fp8(
    rows: int, outputs: int, mode: Mode, said: list[str]
) -> None:
    settings = Settings(gpus=("h100",), precision="fp8", mode=mode)
    model = torch.nn.Linear(1024, outputs).train(mode == "train")
    context = GraphContext(tclint.trace(model, torch.empty(rows, 1024)), settings, "model.py")
    [rule] = [rule for rule in load_rules(settings) if rule.code == "PRC008"]
    messages = [finding.message for finding in findings_that_count(rule, context)]  # type: ignore[arg-type]
    assert [message[: len(start)] for message, start in zip(messages, said, strict=True)] == said
