"""All fixes of a model priced together."""

from __future__ import annotations

import pytest
from examples import context_of, findings_that_count, trace_fixture

import tclint
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.what_if.combined import CombinedFix, all_fixes
from tclint.core.finding import Finding
from tclint.engine.rules.registry import load_rules

torch = pytest.importorskip("torch")


def listed(context: GraphContext, *codes: str) -> list[Finding]:
    rules = [rule for rule in load_rules(context.settings) if isinstance(rule, GraphRule)]
    return [f for rule in rules if rule.code in codes for f in findings_that_count(rule, context)]


def gains_us(findings: list[Finding], gpu: str) -> list[float]:
    return [finding.effect.per_gpu[gpu].gain_us for finding in findings]


def fixed(context: GraphContext, *codes: str) -> tuple[CombinedFix, list[Finding]]:
    findings = listed(context, *codes)
    together = all_fixes(context, findings)
    assert together is not None
    return together, findings


def test_one_fix_gains_what_its_finding_says() -> None:
    context = context_of(trace_fixture("gpt2"), gpus=("a100",))
    together, [finding] = fixed(context, "DIM003")
    [(gpu, after_us)] = together.step_time_us.items()
    before_us = context.estimate(context.scenarios[0]).step_time_us
    assert before_us - after_us == pytest.approx(finding.effect.per_gpu[gpu].gain_us)
    assert together.readiness_percent[gpu] > context.estimate(context.scenarios[0]).readiness_percent
    assert together.made == (finding,)


def test_several_fixes_gain_no_less_than_the_best_and_are_not_summed() -> None:
    context = context_of(trace_fixture("bert_large"), gpus=("a100",))
    together, findings = fixed(context, "DIM003", "ARC004", "ARC005", "ARC016")
    assert {finding.code for finding in together.made} == {"DIM003", "ARC004", "ARC005", "ARC016"}
    [(gpu, after_us)] = together.step_time_us.items()
    saved_us = context.estimate(context.scenarios[0]).step_time_us - after_us
    separate_us = gains_us(findings, gpu)
    assert saved_us > max(separate_us)
    # Fusing the softmax into the attention and into a compiled chain cannot both pay.
    assert saved_us != pytest.approx(sum(separate_us), rel=1e-3)


def test_a_fix_that_the_others_make_useless_is_left_out() -> None:
    context = context_of(trace_fixture("resnet50"), gpus=("a100",))
    [finding] = listed(context, "FMT001")
    twice = all_fixes(context, [finding, finding])
    once = all_fixes(context, [finding])
    assert twice is not None
    assert once is not None
    assert twice.step_time_us == once.step_time_us


def test_without_priced_fixes_there_is_nothing_to_say() -> None:
    def build() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU())

    context = context_of(tclint.trace(build, torch.empty(4096, 1024, device="meta")))
    assert all_fixes(context, listed(context, "DIM001", "ARC016")) is None
