"""No rule on traced models advises against its own price: a sample of benchmarks/own_price.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from examples import context_of, trace_fixture
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import empty, nn

import tclint
from tclint.analysis.advice import advice, gains, is_listed
from tclint.analysis.change import CHANNELS_LAST, Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.config.settings import Settings
from tclint.core.finding import Effect, Finding
from tclint.engine.check import check
from tclint.graph.ops import Op

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import own_price
from random_steps import KINDS, random_step


def problems(context: GraphContext) -> list[str]:
    rules = own_price.graph_rules(context.settings)
    found = [(rule, finding) for rule in rules for finding in advice(rule, context)]
    return [problem for rule, finding in found for problem in own_price.exceptions(rule, context, finding)]


@pytest.mark.parametrize("name", ["gpt2", "mobilenet_v2", "vgg19"])
def test_advice_holds_by_its_own_price(name: str) -> None:
    assert problems(context_of(trace_fixture(name))) == []


@settings(max_examples=len(KINDS), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(10_000, 10**6))
@example(7024)  # the geometric mean of its step times falls, the sum of its percentages does too
def test_advice_holds_for_random_steps(seed: int) -> None:
    name, build, inputs, circumstances = random_step(seed)
    context = GraphContext(tclint.trace(build, inputs), Settings(**circumstances), name)
    assert problems(context) == []


class Advises(GraphRule):
    """Advises one change of a model's first convolution, at any price."""

    code, name, level, confidence = "OUR001", "advises", "warning", "high"

    def __init__(self, change: Callable[[Op], Change]) -> None:
        self.change = change

    def check(self, context: GraphContext) -> Iterator[Finding]:
        for op in [op for op in context.graph.ops if op.kind == "conv"][:1]:
            yield self.finding(
                context.root_location(),
                "Changed, it gains all.",
                effect=context.effect([op.index], Change()),
                identity="only",
                change=self.change(op),
            )


def convolutions(groups: int, count: int = 2, gpus: tuple[str, ...] = ("a100",)) -> GraphContext:
    layers = [nn.Conv2d(1024, 1024, 3, padding=1, groups=groups) for _ in range(count)]
    return context_of(tclint.trace(lambda: nn.Sequential(*layers), empty(64, 1024, 28, 28)), gpus=gpus)


def test_a_finding_has_the_price_of_its_change() -> None:
    context = convolutions(1)
    (finding,) = advice(Advises(lambda _: CHANNELS_LAST), context)
    (before,), (after,) = (
        [each.estimate(scenario) for scenario in each.scenarios]
        for each in (context, context.after(CHANNELS_LAST))
    )
    (gain,) = finding.effect.per_gpu.values()
    assert gain.gain_us == before.step_time_us - after.step_time_us > 0


def test_what_loses_is_not_advised() -> None:
    context = convolutions(16)
    (finding,) = advice(Advises(lambda _: CHANNELS_LAST), context)
    assert not gains(finding, context)
    assert not is_listed(finding, context)
    # A report that lists all gains does not list what gains nothing.
    assert advice(Advises(lambda _: Change()), convolutions(1).with_settings(min_gain_percent=0.0)) == []


def test_what_loses_on_one_gpu_has_to_gain_on_the_mean() -> None:
    context = convolutions(1, gpus=("a100", "v100"))
    (finding,) = advice(Advises(lambda _: CHANNELS_LAST), context)

    def of(*gains_percent: float) -> Finding:
        effects = [
            replace(one, gain_percent=gain)
            for one, gain in zip(finding.effect.per_gpu.values(), gains_percent, strict=True)
        ]
        return replace(finding, effect=Effect(dict(zip(finding.effect.per_gpu, effects, strict=True))))

    assert gains(of(5.0, -2.0), context)
    assert not gains(of(2.0, -5.0), context)
    assert not gains(of(2.0, -1.5), context)
    assert gains(of(0.1, 0.0), context)


def test_what_would_be_asked_again_is_not_advised() -> None:
    def without(first: Op) -> Change:
        return Change(edit=lambda graph: graph.with_ops({first.index: first.emptied()}))

    one, two = (convolutions(1, layers) for layers in (1, 2))
    assert len(advice(Advises(without), one)) == 1
    assert advice(Advises(without), two) == []


def test_a_change_that_does_not_fit_has_no_price() -> None:
    (finding,) = advice(Advises(lambda _: Change(edit=lambda _: None)), convolutions(1))
    assert finding.effect.unknown is not None
    assert finding.change is None


def findings(build: object) -> dict[str, Finding]:
    report = check([build], Settings(gpus=("a100",)))  # type: ignore[list-item]
    return {finding.code: finding for finding in report.findings}


def test_channels_last_that_loses_is_told() -> None:
    def build(last: bool) -> object:
        net = nn.Sequential(*[nn.Conv2d(1024, 1024, 3, padding=1, groups=16, bias=False) for _ in range(2)])
        images = empty(32, 1024, 28, 28)
        if not last:
            return net, images
        return net.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)

    loses = findings(lambda: build(last=True))["FMT008"]
    assert (loses.effect.best_gain_percent or 0) > 50
    assert not {"FMT001", "FMT008"} & set(findings(lambda: build(last=False)))
