"""What-if memory formats: strides as torch's own kernels and views make them."""

from __future__ import annotations

import itertools

import pytest
from cost_support import GraphBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from tclint.cost.transforms.layout import apply_layout, view_strides
from tclint.graph.ops import Graph, TensorSpec
from tclint.graph.ops.spec import channels_last_strides


def image_net() -> Graph:
    build = GraphBuilder()
    x = build.input(2, 8, 16, 16)
    weight = build.parameter("conv.weight", 16, 8, 3, 3)
    y = build.op("conv2d", "conv", {"input": x, "weight": weight}, 2, 16, 16, 16)
    y = build.op("batch_norm", "norm", {"input": y}, 2, 16, 16, 16)
    y = build.op("relu", "elementwise", {"self": y}, 2, 16, 16, 16)
    pooled = build.op("adaptive_avg_pool2d", "pool", {"self": y}, 2, 16, 2, 2)
    flat = build.op("flatten", "view", {"self": pooled}, 2, 64)
    return build.graph(build.linear(flat, 10))


def test_the_format_travels_to_the_flattening() -> None:
    applied = apply_layout(image_net(), "channels_last")
    formats = [op.outputs[0].memory_format for op in applied.ops]
    assert formats == ["channels_last"] * 4 + ["contiguous"] * 2
    assert [spec.memory_format for spec in applied.ops[0].inputs] == ["channels_last"] * 2
    assert applied.inputs[0].memory_format == "channels_last"


def test_a_view_that_needs_a_copy_becomes_one() -> None:
    before, after = image_net(), apply_layout(image_net(), "channels_last")
    assert before.ops[4].kind == "view"
    assert after.ops[4].kind == "copy"


def test_there_and_back() -> None:
    graph = image_net()
    back = apply_layout(apply_layout(graph, "channels_last"), "contiguous")
    assert [op.outputs[0].strides for op in back.ops] == [op.outputs[0].strides for op in graph.ops]


def test_graphs_without_images_stay() -> None:
    build = GraphBuilder()
    graph = build.graph(build.linear(build.input(4, 8), 8))
    assert apply_layout(graph, "channels_last") is graph
    assert apply_layout(image_net(), "as_traced") == image_net()


def test_attention_blocks_see_tokens_without_a_copy() -> None:
    build = GraphBuilder()
    x = build.input(2, 3, 32, 32)
    weight = build.parameter("patch.weight", 8, 3, 16, 16)
    y = build.op("conv2d", "conv", {"input": x, "weight": weight}, 2, 8, 2, 2)
    flat = build.op("flatten", "view", {"self": y}, 2, 8, 4)
    tokens = build.op(
        "transpose", "view", {"self": flat}, 2, 4, 8, strides=(32, 1, 4), attributes={"dim0": 1, "dim1": 2}
    )
    applied = apply_layout(build.graph(tokens), "channels_last")
    assert applied.ops[1].kind == "view"
    assert applied.ops[2].outputs[0].memory_format == "contiguous"


def test_group_norm_goes_back_to_row_major() -> None:
    build = GraphBuilder()
    x = build.input(2, 8, 16, 16)
    weight = build.parameter("conv.weight", 16, 8, 3, 3)
    y = build.op("conv2d", "conv", {"input": x, "weight": weight}, 2, 16, 16, 16)
    normed = build.op("group_norm", "norm", {"input": y}, 2, 16, 16, 16)
    applied = apply_layout(build.graph(normed), "channels_last")
    assert applied.ops[1].outputs[0].memory_format == "contiguous"


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_views_agree_with_torch(data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.empty(shape, device="meta").permute(*order)
    factors = [f for size in shape for f in ([2, 2] if size == 4 else [size])]
    shuffled = data.draw(st.permutations(factors))
    cuts = data.draw(st.lists(st.integers(0, len(shuffled)), max_size=3).map(sorted))
    bounds = [0, *cuts, len(shuffled)]
    new_shape = []
    for low, high in itertools.pairwise(bounds):
        size = 1
        for factor in shuffled[low:high]:
            size *= factor
        new_shape.append(size)
    ours = view_strides(tuple(tensor.shape), tensor.stride(), new_shape)
    try:
        expected = tensor.view(new_shape).stride()
    except RuntimeError:
        assert ours is None
        return
    assert ours is not None
    assert [s for s, n in zip(ours, new_shape, strict=True) if n > 1] == [
        s for s, n in zip(expected, new_shape, strict=True) if n > 1
    ]


def test_channels_last_strides_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.empty(2, 3, 4, 5, device="meta").to(memory_format=torch.channels_last)
    assert channels_last_strides((2, 3, 4, 5)) == tensor.stride()
    assert TensorSpec((2, 3, 4, 5), "float32", tensor.stride()).memory_format == "channels_last"
