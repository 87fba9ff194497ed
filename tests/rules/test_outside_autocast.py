"""The gain of casting by hand is that of the model with the casts written out."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import findings_that_count

import tclint
from tclint.analysis.graph_context import GraphContext
from tclint.config.settings import Settings
from tclint.engine.rules.registry import load_rules

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "fixtures" / "rules" / "AMP029"


def context_of_example(name: str, settings: Settings) -> GraphContext:
    namespace: dict[str, object] = {}
    path = EXAMPLES / f"{name}.py"
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
    graph = tclint.trace(namespace["build_model"], namespace["example_inputs"]())  # type: ignore[operator]
    return GraphContext(graph, settings, str(path))


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped products")
def test_the_predicted_step_is_that_of_the_cast_model() -> None:
    settings = Settings(gpus=("h100",), precision="bf16")
    left_out = context_of_example("invalid_grouped_product_of_experts", settings)
    cast = context_of_example("valid_inputs_and_weights_are_cast", settings)
    [rule] = [rule for rule in load_rules(settings) if rule.code == "AMP029"]
    [finding] = findings_that_count(rule, left_out)  # type: ignore[arg-type]
    [effect] = finding.effect.per_gpu.values()
    before, after = (one.estimate(one.scenarios[0]).step_time_us for one in (left_out, cast))
    assert before - effect.gain_us == pytest.approx(after, rel=0.05)
    assert effect.gain_us > 0.6 * before
