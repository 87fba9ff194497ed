"""The rules on whole models: found where they should be, once, and silent on what is well made."""

from __future__ import annotations

import pytest
from examples import FIXTURES, context_of, findings_that_count, trace_fixture

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.core.finding import Finding
from tclint.engine.rules.registry import all_rules

RULES = [rule() for rule in all_rules() if issubclass(rule, GraphRule)]


def findings(context: GraphContext, *codes: str) -> list[Finding]:
    return [
        finding
        for rule in RULES
        if not codes or rule.code in codes
        for finding in findings_that_count(rule, context)
    ]


def line(finding: Finding) -> str:
    return (FIXTURES / finding.location.path).read_text().splitlines()[finding.location.line - 1]


def test_gpt2_vocabulary_is_reported_where_head_and_embedding_are_built() -> None:
    [finding] = findings(context_of(trace_fixture("gpt2")), "DIM003")
    assert "self.head = nn.Linear(n_embd, vocab_size" in line(finding)
    embedding = (FIXTURES / "gpt2.py").read_text().splitlines()[finding.related[0].location.line - 1]
    assert "nn.Embedding(vocab_size" in embedding
    assert finding.evidence["padding"] == [[50257, 50304]]
    assert finding.evidence["tied"] is True
    gains = [gain.gain_percent for gain in finding.effect.per_gpu.values()]
    # Users reported 4 % of the step on RTX 3090 and 13.7 % on A100 (compiled) for this padding.
    assert all(4 < gain < 30 for gain in gains)


def test_gpt2_with_a_padded_vocabulary_is_silent() -> None:
    assert findings(context_of(trace_fixture("gpt2", vocab_size=50304))) == []


@pytest.mark.parametrize(
    ("width", "heads", "padded", "of_heads"), [(756, 12, 768, None), (1010, 10, 1024, [8, 128])]
)
def test_a_width_is_padded_with_its_heads(
    width: int, heads: int, padded: int, of_heads: list[int] | None
) -> None:
    graph = trace_fixture("gpt2", n_layer=3, n_embd=width, n_head=heads, vocab_size=50304)
    [found] = findings(context_of(graph), "DIM001", "DIM005")
    assert found.code == "DIM001"
    assert (found.evidence["padding"], found.evidence.get("heads")) == ([[width, padded]], of_heads)
    assert len(found.related) >= 7


def test_resnet50_has_one_layout_and_one_first_layer_finding() -> None:
    context = context_of(trace_fixture("resnet50"), gpus=("v100", "a100"))
    layout = findings(context, "FMT001")
    assert len(layout) == 1
    assert "def build_model" in line(layout[0])
    assert len(layout[0].effect.per_gpu) == 2
    stem_rule = next(rule for rule in RULES if rule.code == "DIM006")
    stem = list(stem_rule.check(context))
    assert len(stem) == 1
    assert "nn.Conv2d" in line(stem[0])
    assert (stem[0].effect.best_gain_percent or 0) > 0
    assert {f.code for f in findings(context)} <= {"FMT001", "DIM006", "ARC016"}


def test_mobilenet_reports_its_early_depthwise_convolutions_once() -> None:
    context = context_of(trace_fixture("mobilenet_v2"))
    [finding] = findings(context, "ARC002")
    depthwise = [op for op in context.graph.ops if op.attributes.get("groups", 1) > 1]
    assert 0 < finding.evidence["layers"] < len(depthwise), "late ones are not reported"
    assert all(share > 1 for share in finding.evidence["share_percent"].values())
    assert not findings(context, "ARC003", "DIM002")


def test_unet_reports_its_useless_biases_once() -> None:
    context = context_of(trace_fixture("unet"))
    [finding] = findings(context, "ARC001")
    assert finding.evidence["layers"] == 18
    assert "nn.Conv2d" in line(finding)
    assert [item.location.line for item in finding.related] != []


def test_resnext_groups_of_8_to_32_are_left_alone() -> None:
    assert findings(context_of(trace_fixture("resnext101_32x4d")), "ARC003", "DIM002", "ARC002") == []


def test_a_class_count_that_costs_nothing_is_left_alone() -> None:
    for name in ("ssd300", "ncf", "waveglow", "jasper"):
        assert findings(context_of(trace_fixture(name)), "DIM001", "DIM002") == []


def test_fp32_has_no_alignment_to_want() -> None:
    for name in ("gpt2", "resnet50", "mobilenet_v2"):
        context = context_of(trace_fixture(name), precision="fp32")
        assert [f for f in findings(context) if f.code.startswith(("DIM00", "FMT", "ARC00"))] == []


def test_what_torch_compile_mends_fails_no_run() -> None:
    for fixture, code in (("gpt2", "DIM003"), ("resnet50", "FMT001")):
        [eager] = findings(context_of(trace_fixture(fixture)), code)
        [finding] = findings(context_of(trace_fixture(fixture), compiled=True), code)
        assert (eager.level, finding.level) == ("warning", "info")
        assert "torch.compile handles this" in finding.message
        assert finding.evidence["torch_compile_handles_this"] is True


def test_no_model_has_many_findings_of_one_rule() -> None:
    """In another precision than the one in which test_golden.py lists all findings."""
    for name in ("bert_large", "densenet121", "gnmt", "ssd300", "waveglow"):
        context = context_of(trace_fixture(name), precision="tf32", gpus=("a100",))
        counts: dict[str, int] = {}
        for finding in findings(context):
            counts[finding.code] = counts.get(finding.code, 0) + 1
            assert finding.message
        assert all(count <= 3 for count in counts.values()), (name, counts)


def test_fingerprints_tell_findings_apart() -> None:
    for name in ("gpt2", "unet", "mobilenet_v2", "vgg19"):
        found = findings(context_of(trace_fixture(name)))
        assert len({finding.fingerprint for finding in found}) == len(found)


def test_a_model_of_gpt3s_width() -> None:
    """Few of its layers: test_large_models.py lints all."""
    graph = trace_fixture("gpt2", n_layer=12, n_head=96, n_embd=12300 - 12, vocab_size=50304)
    context = context_of(graph)
    assert findings(context) == []
    worst = context_of(trace_fixture("gpt2", n_layer=12, n_head=100, n_embd=12300))
    assert findings(worst, "DIM001")
