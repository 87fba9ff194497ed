"""What the rules share: what-if edits, prices of changes, wording."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
import torch
from examples import context_of, trace_fixture
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, empty, nn

import tclint
from tclint.analysis.attention import attention_blocks
from tclint.analysis.change import CHANNELS_LAST, Change, resize
from tclint.analysis.layers import layers_phrase, module_pattern, width_dims
from tclint.analysis.limits import LATENCY_BOUND_PERCENT, latency_bound
from tclint.analysis.widths.alignment import is_misaligned, largest_power_of_two_in, round_up
from tclint.analysis.widths.bounds import alignment_gain_percent
from tclint.analysis.widths.interfaces import is_given, with_input_channels, with_input_widths
from tclint.analysis.widths.padding import Padding, best_padding
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph, Op
from tclint.graph.ops.graph import Parameter
from tclint_rules.architecture.activation import ActivationNotFusable
from tclint_rules.architecture.limits import LatencyBoundLayers
from tclint_rules.architecture.manual_attention import ManualAttention
from tclint_rules.convolutions.bias_before_norm import without_bias
from tclint_rules.convolutions.dense import ungrouped, with_fused_expansion
from tclint_rules.convolutions.early_stage import EarlyStageExtras
from tclint_rules.convolutions.grouped_convolution import DepthwiseConv, is_depthwise
from tclint_rules.dims.alignment import LinearMisaligned
from tclint_rules.dims.attention import with_head_dim
from tclint_rules.dims.small_products import SmallGemm


def conv_net() -> Graph:
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.Conv2d(32, 8, 1)]
    return tclint.trace(lambda: nn.Sequential(*layers), empty(8, 3, 56, 56))


def parameter(graph: Graph, name: str) -> Parameter | None:
    return next((p for p in graph.parameters if p.name == name), None)


def test_a_dropped_bias_is_gone_from_op_and_parameters() -> None:
    graph = conv_net()
    edited = without_bias(graph, [graph.ops[0]])
    assert edited.ops[0].input("bias") is None
    assert edited.ops[0].input("weight") == graph.ops[0].input("weight")
    assert parameter(graph, "0.bias") is not None
    assert parameter(edited, "0.bias") is None
    assert parameter(edited, "2.bias") == parameter(graph, "2.bias")


def test_a_dense_convolution_has_a_full_weight() -> None:
    graph = conv_net()
    [depthwise] = [op for op in graph.ops if is_depthwise(op)]
    edited = ungrouped(graph, [depthwise])
    assert edited.ops[1].attributes["groups"] == 1
    weight = parameter(edited, "1.weight")
    assert weight is not None
    assert weight.shape == (32, 32, 3, 3)
    assert forward_flops(edited) - forward_flops(graph) == 2 * 8 * 56 * 56 * 32 * 31 * 9


def test_input_channels_change_image_and_weight_only() -> None:
    graph = conv_net()
    edited = with_input_channels(graph, [graph.ops[0]], 4)
    assert edited.ops[0].inputs[0].shape == (8, 4, 56, 56)
    weight = parameter(edited, "0.weight")
    assert weight is not None
    assert weight.shape == (32, 4, 3, 3)
    assert edited.ops[1:] == graph.ops[1:]


def test_other_heads_keep_the_width() -> None:
    graph = trace_fixture("gpt2")
    blocks = attention_blocks(graph)
    assert len(blocks) == 12
    assert {(block.heads, block.head_dim, block.is_fused) for block in blocks} == {(12, 64, True)}
    edited = with_head_dim(graph, [block.ops[0] for block in blocks], 128)
    assert edited is not None
    before, after = blocks[0].ops[0], edited.ops[blocks[0].ops[0].index]
    assert after.inputs[0].shape[1::2] == (6, 128)
    assert after.inputs[0].numel == before.inputs[0].numel
    assert forward_flops(edited) == forward_flops(graph)
    assert with_head_dim(graph, [blocks[0].ops[0]], 100) is None


def test_written_out_attention_is_found_with_its_lengths() -> None:
    blocks = attention_blocks(trace_fixture("bert_large"))
    assert len(blocks) == 24
    assert {(b.heads, b.head_dim, b.query_length, b.key_length) for b in blocks} == {(16, 64, 512, 512)}
    assert [op.kind for op in blocks[0].ops] == ["matmul", "softmax", "matmul"]


def test_a_change_is_priced_from_where_it_starts_and_per_sample() -> None:
    graph = trace_fixture("resnet50")
    context = context_of(graph, gpus=("a100",))
    [whole] = context.effect((0,), CHANNELS_LAST).per_gpu.values()
    assert 0 < context.own_gain_percent((0,), CHANNELS_LAST) < whole.gain_percent
    again = replace(CHANNELS_LAST, presupposes=CHANNELS_LAST.settings)
    [nothing] = context.effect((0,), again).per_gpu.values()
    assert nothing.gain_us == 0
    # The same step for half of the samples is half as good.
    [half] = context.effect((0,), Change(samples=0.5)).per_gpu.values()
    assert half.gain_percent == pytest.approx(-100)


def test_padding_prefers_the_guides_multiple_among_equal_gains() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(1024, 8190), nn.Linear(8190, 1024))

    context = context_of(tclint.trace(build, empty(4096, 1024)), gpus=("a100",))
    group = context.dims.group_of_parameter("0.weight", 0)
    assert group is not None
    padding = best_padding(context, [group], (0, 1))
    assert isinstance(padding, Padding)
    assert padding.sizes == ((8190, 8192),)
    assert (padding.effect.best_gain_percent or 0) > 5


def test_the_bound_is_no_less_than_what_padding_gains_and_zero_when_aligned() -> None:
    def build(width: int) -> Graph:
        layers = [nn.Linear(1024, width), nn.Linear(width, 1024)]
        return tclint.trace(lambda: nn.Sequential(*layers), empty(4096, 1024))

    odd, even = context_of(build(4001), gpus=("a100",)), context_of(build(4096), gpus=("a100",))
    group = odd.dims.group_of_parameter("0.weight", 0)
    assert group is not None
    [gain] = odd.effect((0, 1), resize({group: 4008})).per_gpu.values()
    [bound] = alignment_gain_percent(odd, (0, 1), (8,)).values()
    assert 0 < gain.gain_percent <= bound + 0.5
    assert alignment_gain_percent(even, (0, 1), (8,)) == {"a100-sxm4-80gb": 0.0}


@given(st.integers(1, 10**6), st.sampled_from([4, 8, 16, 32, 64, 128]))
def test_rounding_up_reaches_the_next_multiple(size: int, multiple: int) -> None:
    rounded = round_up(size, multiple)
    assert rounded % multiple == 0
    assert size <= rounded < size + multiple
    assert rounded % largest_power_of_two_in(rounded) == 0


@pytest.mark.parametrize(
    ("size", "precision", "misaligned"),
    [
        (50257, "fp16", True),
        (50304, "fp16", False),
        (4, "fp16", False),
        (12, "fp16", True),
        (12, "tf32", False),
        (1001, "fp32", False),
    ],
)
def test_alignment_by_precision(size: int, precision: str, misaligned: bool) -> None:
    assert is_misaligned(size, precision) is misaligned  # type: ignore[arg-type]


def test_layers_are_named_by_one_pattern_or_a_few_names() -> None:
    op = Op(0, "linear", "linear", (), ())

    def named(*paths: str) -> list[Op]:
        return [replace(op, module_path=path) for path in paths]

    assert module_pattern(named("blocks.0.fc", "blocks.1.fc")) == "blocks.*.fc"
    assert module_pattern(named("head")) == "head"
    assert module_pattern(named("a.up", "b.down", "c.x", "d.y")) == "a.up, b.down, c.x, ..."
    assert module_pattern(named("")) == ""
    assert layers_phrase(named("head"), "layer") == "the layer (head)"
    # One layer called twice is one layer.
    assert layers_phrase(named("head", "head"), "layer") == "the layer (head)"


def small_network() -> Graph:
    return tclint.trace(
        lambda: nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)), empty(8, 256)
    )


def codes(graph: Graph) -> set[str]:
    context = context_of(graph, gpus=("a100",))
    return {finding.code for rule in (LatencyBoundLayers(), SmallGemm()) for finding in rule.check(context)}


def test_findings_on_the_batch_need_a_batch_that_someone_chose() -> None:
    graph = small_network()
    assert codes(graph) == {"ARC021"}
    inferred = replace(graph, metadata={**graph.metadata, "inputs_from": "inferred"})
    assert codes(inferred) == set()
    assert codes(replace(inferred, metadata={**inferred.metadata, "batch": 8})) == {"ARC021"}


def test_a_latency_bound_model_is_told_what_waits() -> None:
    found = latency_bound(context_of(small_network(), gpus=("a100",)))
    assert found is not None
    assert found.share_percent["a100-sxm4-80gb"] > LATENCY_BOUND_PERCENT
    assert any("2 linear (0, 2), products of 8 x 256 x 256" in cause for cause in found.causes)


def test_a_fused_block_has_neither_expansion_nor_depthwise_convolution() -> None:
    layers = [
        nn.Conv2d(16, 96, 1, bias=False),
        nn.BatchNorm2d(96),
        nn.ReLU(),
        nn.Conv2d(96, 96, 3, padding=1, groups=96, bias=False),
        nn.Conv2d(96, 16, 1, bias=False),
    ]
    graph = tclint.trace(lambda: nn.Sequential(*layers), empty(2, 16, 28, 28))
    [depthwise] = [op for op in graph.ops if is_depthwise(op)]
    fused = with_fused_expansion(graph, [depthwise])
    names = {p.name for p in fused.parameters}
    assert "0.weight" not in names
    assert "1.weight" not in names
    weight = parameter(fused, "3.weight")
    assert weight is not None
    assert weight.shape == (96, 16, 3, 3)
    assert with_fused_expansion(graph, [graph.ops[0]]) == graph  # nothing in front of it


def test_a_given_width_is_padded_where_the_data_is_made() -> None:
    graph = tclint.trace(lambda: nn.Sequential(nn.Linear(63, 64), nn.Linear(64, 61)), empty(512, 63))
    padded = with_input_widths(graph, {0: 64})
    assert padded.ops[0].inputs[0].shape == (512, 64)
    weight = parameter(padded, "0.weight")
    assert weight is not None
    assert weight.shape == (64, 64)
    assert padded.ops[1] == graph.ops[1]
    context = context_of(graph)
    dims = {dim.role: dim for dim in width_dims(graph.ops[0], context.dims)}
    assert is_given(dims["in_features"], context)
    assert not is_given(dims["out_features"], context)


@pytest.mark.parametrize(
    ("hidden", "outputs", "reported"), [(512, 63, []), (512, 65, [65]), (61, 512, [61]), (61, 59, [61])]
)
def test_fewer_than_64_outputs_of_a_model_are_an_interface(
    hidden: int, outputs: int, reported: list[int]
) -> None:
    layers = [nn.Linear(512, hidden), nn.ReLU(), nn.Linear(hidden, outputs)]
    graph = tclint.trace(lambda: nn.Sequential(*layers), empty(8192, 512))
    found = list(LinearMisaligned().check(context_of(graph, gpus=("a100",))))
    assert [size for finding in found for size in finding.evidence["sizes"]] == reported


class _Windows(nn.Module):
    """Attention over windows of 49 tokens, then over all 784; masked or not."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(96, 288)
        self.softmax = nn.Softmax(-1)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, 3, width // 3).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1)
        if mask is None:
            weights = self.softmax(scores)
        else:
            scores = scores + mask
            weights = self.softmax(scores)
        return (weights @ v).transpose(1, 2).reshape(batch, tokens, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        windows = self.attend(x.reshape(-1, 49, 96), mask).reshape(x.shape)
        return self.attend(windows, None)


def test_written_out_attention_is_one_finding_that_names_the_largest_scores() -> None:
    context = context_of(tclint.trace(_Windows, (empty(16, 784, 96), empty(49, 49))), gpus=("a100",))
    [finding] = ManualAttention().check(context)
    assert "written-out attention (softmax)" in finding.message
    assert "scores of up to 784 x 784 per head" in finding.message
    assert finding.evidence["query_length"] == 784
    # The unmasked softmax, which is the global one; the other line comes along.
    first = inspect.getsourcelines(_Windows.attend)[1]
    assert finding.location.line == first + 5
    assert [related.location.line for related in finding.related] == [first + 8]


@pytest.mark.parametrize(
    ("norm", "name"), [(nn.GroupNorm(8, 64), "group norm"), (nn.LayerNorm([64, 112, 112]), "layer norm")]
)
def test_a_norm_of_the_early_stage_is_called_what_it_is(norm: nn.Module, name: str) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), norm, nn.Conv2d(64, 64, 1), norm)
    context = context_of(tclint.trace(lambda: layers, empty(32, 3, 224, 224)), gpus=("a100",))
    [finding] = EarlyStageExtras().check(context)
    assert f"{name} operator" in finding.message
    assert finding.fix is not None
    assert f"keep {name} for" in finding.fix.advice


def test_depthwise_convolutions_and_activations_are_one_note_each() -> None:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1)]
    layers += [nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.Conv2d(32, 32, 1), nn.LeakyReLU()]
    layers += [nn.Conv2d(32, 32, 5, 1, 2, groups=32), nn.Conv2d(32, 32, 1), nn.Hardswish()]
    layers += [nn.Conv2d(32, 32, 1), nn.LeakyReLU(), nn.Conv2d(32, 32, 1), nn.Hardswish()]
    context = context_of(tclint.trace(lambda: nn.Sequential(*layers), empty(32, 3, 224, 224)), gpus=("a100",))
    [depthwise] = DepthwiseConv().check(context)
    assert depthwise.evidence["layers"] == 2
    [activations] = ActivationNotFusable().check(context)
    assert activations.evidence["activations"] == ["hardswish", "leaky_relu"]


@pytest.mark.parametrize(("factor", "findings"), [(0.9, 1), (1.5, 0)])
def test_a_loss_below_the_least_gain_is_not_worth_a_finding(factor: float, findings: int) -> None:
    """Where padding has no price, the most that it could gain counts."""

    class Splits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Linear(512, 1028)

        def forward(self, x: Tensor) -> Tensor:
            first, second, gates = torch.split(self.wide(x), (512, 512, 4), -1)
            return first * gates[..., :1] + second * gates[..., 1:2]

    graph = tclint.trace(Splits, empty(4096, 512))
    (finding,) = LinearMisaligned().check(context_of(graph))
    most = max(finding.evidence["gain_is_at_most_percent"].values())
    context = context_of(graph, min_gain_percent=most * factor)
    assert len(list(LinearMisaligned().check(context))) == findings


@pytest.mark.parametrize(("shape", "findings"), [((64, 4, 512, 64), 1), ((512, 64), 0)])
def test_attention_that_the_fused_call_does_not_take_is_left_alone(
    shape: tuple[int, ...], findings: int
) -> None:
    class Attends(nn.Module):
        def forward(self, x: Tensor, value: Tensor) -> Tensor:
            return (x @ x.transpose(-2, -1) / 8.0).softmax(-1) @ value

    context = context_of(tclint.trace(Attends, (empty(64, 4, 512, 64), empty(shape))))
    assert len(list(ManualAttention().check(context))) == findings
