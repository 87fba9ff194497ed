"""What is recorded: operators, kinds, arguments, links between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import tclint
from tclint.graph.ops import Graph, Op


class Function(nn.Module):
    """A module whose forward is a given function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def trace(function: Callable[..., Any], *inputs: Tensor) -> Graph:
    return tclint.trace(lambda: Function(function), inputs)


def only(graph: Graph, name: str) -> Op:
    (op,) = [op for op in graph.ops if op.name == name]
    return op


IMAGE = (2, 8, 6, 6)
KINDS = {
    "linear": ("linear", lambda x: F.linear(x, meta(5, 6))),
    "mm": ("matmul", lambda x: torch.mm(x[0, 0], x[0, 1])),
    "bmm": ("matmul", lambda x: torch.bmm(x[0], x[1])),
    "matmul": ("matmul", lambda x: x @ x),
    "addmm": ("matmul", lambda x: torch.addmm(x[0, 0], x[0, 0], x[0, 1])),
    "baddbmm": ("matmul", lambda x: torch.baddbmm(x[0], x[0], x[1])),
    "conv1d": ("conv", lambda x: F.conv1d(x[0], meta(3, 6, 2))),
    "conv2d": ("conv", lambda x: F.conv2d(x, meta(4, 8, 3, 3))),
    "conv3d": ("conv", lambda x: F.conv3d(x[None], meta(3, 2, 1, 1, 1))),
    "conv_transpose2d": ("conv", lambda x: F.conv_transpose2d(x, meta(8, 4, 2, 2))),
    "scaled_dot_product_attention": ("attention", lambda x: F.scaled_dot_product_attention(x, x, x)),
    "batch_norm": ("norm", lambda x: F.batch_norm(x, None, None, training=True)),
    "layer_norm": ("norm", lambda x: F.layer_norm(x, (6,))),
    "group_norm": ("norm", lambda x: F.group_norm(x, 2)),
    "instance_norm": ("norm", F.instance_norm),
    "softmax": ("softmax", lambda x: x.softmax(1)),
    "log_softmax": ("softmax", lambda x: x.log_softmax(1)),
    "add": ("elementwise", lambda x: x + x),
    "relu": ("elementwise", F.relu),
    "where": ("elementwise", lambda x: torch.where(x > 0, x, 0.0)),
    "dropout": ("elementwise", lambda x: F.dropout(x, 0.5)),
    "bitwise_and": ("elementwise", lambda x: (x > 0) & (x < 1)),
    "sum": ("reduction", lambda x: x.sum()),
    "mean": ("reduction", lambda x: x.mean(1)),
    "argmax": ("reduction", lambda x: x.argmax(1)),
    "max_pool2d": ("pool", lambda x: F.max_pool2d(x, 2)),
    "adaptive_avg_pool2d": ("pool", lambda x: F.adaptive_avg_pool2d(x, 1)),
    "upsample_nearest2d": ("pool", lambda x: F.interpolate(x, scale_factor=2)),
    "embedding": ("embedding", lambda x: F.embedding(x[0, 0].long(), meta(9, 4))),
    "index_select": ("copy", lambda x: x.index_select(0, torch.tensor([0]))),
    "index": ("copy", lambda x: x[torch.tensor([1, 0])]),
    "cat": ("copy", lambda x: torch.cat([x, x])),
    "stack": ("copy", lambda x: torch.stack([x, x])),
    "pad": ("copy", lambda x: F.pad(x, (1, 1))),
    "roll": ("copy", lambda x: x.roll(1, 0)),
    "repeat": ("copy", lambda x: x.repeat(2, 1, 1, 1)),
    "clone": ("copy", lambda x: x.clone()),
    "mse_loss": ("loss", lambda x: F.mse_loss(x, x * 2)),
    "cross_entropy_loss": ("loss", lambda x: F.cross_entropy(x[0, 0], x[0, 1, 0].long())),
    "view": ("view", lambda x: x.view(2, -1)),
    "transpose": ("view", lambda x: x.transpose(0, 1)),
    "permute": ("view", lambda x: x.permute(3, 2, 1, 0)),
    "expand": ("view", lambda x: x[:1].expand(5, -1, -1, -1)),
    "split": ("view", lambda x: x.split(4, 1)),
    "chunk": ("view", lambda x: x.chunk(2)),
    "unbind": ("view", lambda x: x.unbind(0)),
    "detach": ("view", lambda x: x.detach()),
}


@pytest.mark.parametrize("name", KINDS)
def test_kind(name: str) -> None:
    kind, function = KINDS[name]
    assert only(trace(function, meta(*IMAGE)), name).kind == kind


@pytest.mark.parametrize("layer", [nn.LSTM(4, 6), nn.GRU(4, 6, batch_first=True), nn.RNN(4, 6)])
def test_recurrent_kinds(layer: nn.RNNBase) -> None:
    graph = tclint.trace(lambda: layer, meta(3, 5, 4))
    (op,) = [op for op in graph.ops if op.kind == "rnn"]
    assert op.outputs[0].shape == (3, 5, 6)
    given = zip(op.inputs, op.input_names, strict=True)
    assert [spec.parameter for spec, name in given if name.startswith("params[")] == [
        "weight_ih_l0",
        "weight_hh_l0",
        "bias_ih_l0",
        "bias_hh_l0",
    ]


def test_unknown_operators_are_other() -> None:
    assert only(trace(torch.linalg.inv, meta(4, 4)), "linalg_inv").kind == "other"


@pytest.mark.parametrize(
    ("function", "name", "kind"),
    [
        (lambda x: x.reshape(-1), "reshape", "view"),
        (lambda x: x.transpose(0, 1).reshape(-1), "reshape", "copy"),
        (lambda x: x.flatten(), "flatten", "view"),
        (lambda x: x.transpose(0, 1).flatten(), "flatten", "copy"),
        (lambda x: x.transpose(0, 1).contiguous(), "contiguous", "copy"),
        (lambda x: x.to(torch.float16), "to", "copy"),
    ],
)
def test_copies_are_told_from_views(function: Any, name: str, kind: str) -> None:
    assert only(trace(function, meta(3, 4)), name).kind == kind


@pytest.mark.parametrize(
    "function",
    [lambda x: x.contiguous(), lambda x: x.to(torch.float32), lambda x: F.dropout(x, 0.5, training=False)],
)
def test_operators_that_do_nothing_are_not_recorded(function: Any) -> None:
    assert trace(function, meta(3, 4)).ops == ()


def test_arguments_follow_the_schema() -> None:
    op = only(
        trace(lambda x: F.conv2d(x, meta(4, 2, 3, 3), stride=2, groups=4, padding=1), meta(*IMAGE)), "conv2d"
    )
    assert op.input_names == ("input", "weight")
    assert op.attributes == {
        "bias": None,
        "stride": [2, 2],
        "padding": [1, 1],
        "dilation": [1, 1],
        "groups": 4,
    }


def test_keywords_in_any_order_land_in_schema_order() -> None:
    def function(x: Tensor) -> Tensor:
        return F.layer_norm(bias=meta(6, dtype=torch.float64), weight=x[0], input=x, normalized_shape=(6,))

    op = only(trace(function, meta(4, 6, dtype=torch.float64)), "layer_norm")
    assert op.input_names == ("input", "weight", "bias")
    assert [spec.shape for spec in op.inputs] == [(4, 6), (6,), (6,)]
    assert op.inputs[1].producer == 0


def test_dtypes_and_defaults_are_json_values() -> None:
    op = only(trace(lambda x: x.sum(1, dtype=torch.float16), meta(3, 4)), "sum")
    assert op.attributes == {"dim": [1], "keepdim": False, "dtype": "float16"}


def test_tensor_lists_are_numbered() -> None:
    op = only(trace(lambda x, y: torch.cat([x, y, x], 1), meta(2, 3), meta(2, 5)), "cat")
    assert op.input_names == ("tensors[0]", "tensors[1]", "tensors[2]")
    assert [spec.input_name for spec in op.inputs] == ["inputs[0]", "inputs[1]", "inputs[0]"]


def test_producers_link_the_outputs_of_split() -> None:
    graph = trace(lambda x: x.split(2, 1)[2] + 1, meta(4, 6))
    add = only(graph, "add")
    assert (add.inputs[0].producer, add.inputs[0].output_index) == (0, 2)
    assert graph.outputs[0].producer == add.index


def test_in_place_operators_drop_the_underscore() -> None:
    graph = trace(lambda x: (x * 2).add_(1).relu_(), meta(4, 6))
    assert [(op.name, op.in_place) for op in graph.ops] == [("mul", False), ("add", True), ("relu", True)]
    assert [op.inputs[0].producer for op in graph.ops] == [None, 0, 1]


def test_writing_a_view_is_seen_through_the_whole() -> None:
    def function(x: Tensor) -> Tensor:
        out = torch.zeros(3, 4)
        for row in range(3):
            out[row] = x[row] * 2
        return out.sum()

    graph = trace(function, meta(3, 4))
    # From the sum back through every row that was written.
    seen, pending = set(), [only(graph, "sum").index]
    while pending:
        op = graph.ops[pending.pop()]
        seen.add(op.name)
        pending += [spec.producer for spec in op.inputs if spec.producer is not None]
    writes = [op for op in graph.ops if op.name == "copy"]
    assert len(writes) == 3
    assert {"mul", "copy"} <= seen


@pytest.mark.parametrize("decorate", [lambda function: function, torch.inference_mode(), torch.no_grad()])
def test_a_cache_kept_outside_the_buffers_is_written(decorate: Callable[..., Any]) -> None:
    cache = torch.zeros(4, 16, 8)

    @decorate
    def function(x: Tensor) -> Tensor:
        cache[:2, :3] = x * 2
        return cache[:2, :3] * 3

    graph = trace(function, meta(2, 3, 8))
    assert graph.metadata["adjustments"] == []
    assert [op.name for op in graph.ops] == ["mul", "copy", "as_strided_scatter", "slice", "slice", "mul"]


def test_a_constant_that_inputs_were_written_to_is_none_any_more() -> None:
    def function(words: Tensor) -> Tensor:
        padded = torch.zeros(2, 9, dtype=torch.int64)
        padded[:, :4] = words
        return padded != 0

    kept, unknown = (trace(function, tensor) for tensor in (torch.ones(2, 4).long(), meta(2, 4)))
    assert [op.name for op in kept.ops] == ["copy", "as_strided_scatter", "ne"]
    assert [op.name for op in unknown.ops] == [op.name for op in kept.ops]


def test_disjoint_views_do_not_learn_of_each_other() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        first, second = y[:2], y[2:]
        first.add_(1)
        return second * 3

    graph = trace(function, meta(4, 6))
    assert [op.name for op in graph.ops].count("as_strided_scatter") == 0
    assert graph.ops[graph.ops[-1].inputs[0].producer].name == "slice"


def test_einsum_is_followed_by_the_products_it_becomes() -> None:
    graph = trace(lambda a, b: torch.einsum("bqd,bkd->bqk", a, b), meta(2, 3, 4), meta(2, 5, 4))
    einsum = only(graph, "einsum")
    children = [op for op in graph.ops if op.parent == einsum.index]
    assert einsum.attributes["equation"] == "bqd,bkd->bqk"
    assert einsum.outputs[0].shape == (2, 3, 5)
    assert [op.name for op in children].count("bmm") == 1
    assert graph.outputs[0].producer in {op.index for op in children}


def test_constants_are_computed_not_recorded() -> None:
    def function(x: Tensor) -> Tensor:
        mask = torch.triu(torch.ones(6, 6), diagonal=1).bool()
        assert int(mask.sum()) == 15
        return x.masked_fill(mask, -1.0)

    assert [op.name for op in trace(function, meta(6, 6)).ops] == ["masked_fill"]


def test_boolean_constants_select_an_exact_number() -> None:
    keep = torch.tensor([True, False, True])
    graph = trace(lambda x: x[keep], meta(3, 4))
    assert graph.outputs[0].shape == (2, 4)
    assert graph.assumptions == ()


def test_undefined_constants_are_zero() -> None:
    def function(x: Tensor) -> Tensor:
        assert torch.empty(4, 2, dtype=torch.int64).tolist() == [[0, 0]] * 4
        return x * 2

    torch.full((64,), 7)  # leaves something else in the allocator's memory
    assert [op.name for op in trace(function, meta(2)).ops] == ["mul"]


def test_large_noise_is_recorded_and_allocates_nothing() -> None:
    graph = trace(lambda x: x + torch.randn(1 << 20, 1 << 20), meta(1))
    assert [(op.name, op.kind) for op in graph.ops] == [("randn", "copy"), ("add", "elementwise")]


def test_no_grad_regions_are_not_differentiable() -> None:
    def function(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x * 2
        return y + x

    assert [op.differentiable for op in trace(function, meta(2)).ops] == [False, True]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grad


def test_custom_functions_are_differentiable() -> None:
    graph = trace(lambda x: Square.apply(x) + 0, meta(4))
    assert [(op.name, op.differentiable) for op in graph.ops] == [("mul", True), ("add", True)]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers_keep_whole_operators(reentrant: bool) -> None:
    layer = nn.Linear(4, 4)
    graph = trace(lambda x: checkpoint(layer, x, use_reentrant=reentrant), meta(2, 4))
    assert [op.name for op in graph.ops] == ["linear"]


def test_autocast_regions_of_the_model() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cuda", dtype=torch.float16):
                y = self.fc(x).softmax(-1)
                with torch.autocast("cuda", enabled=False):
                    return self.fc(y)

    first, softmax, second = tclint.trace(Net, meta(2, 8)).ops
    assert {spec.dtype for spec in first.inputs} == {"float16"}
    assert [(cast.parameter, cast.to_dtype) for cast in first.casts] == [
        (None, "float16"),
        ("fc.weight", "float16"),
        ("fc.bias", "float16"),
    ]
    assert softmax.outputs[0].dtype == "float32"
    assert {spec.dtype for spec in second.inputs} == {"float32"}
    assert second.casts == ()


def test_devices_that_are_not_there() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4, device="cuda:1")
            self.cuda().to("cuda")

        def forward(self, x: Tensor) -> Tensor:
            x = x.cuda(non_blocking=True).to("cuda:0", torch.float32)
            return self.fc(x) + torch.ones(4, device="cuda").to(x.device)

    assert [op.name for op in tclint.trace(Net, meta(2, 4)).ops] == ["linear", "add"]


def test_compiled_and_scripted_parts_run_as_python() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.compile(nn.Linear(4, 4))
            self.second = torch.jit.script(nn.Linear(4, 4))
            self.third = nn.Linear(4, 4)
            self.third.compile()

        def forward(self, x: Tensor) -> Tensor:
            return self.third(self.second(self.first(x)))

    graph = tclint.trace(Net, meta(2, 4))
    assert [(op.name, op.module_path) for op in graph.ops] == [
        ("linear", "first"),
        ("linear", "second"),
        ("linear", "third"),
    ]


def test_attention_with_weights_is_written_out() -> None:
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    x = meta(2, 5, 16)
    names = [op.name for op in trace(lambda q: layer(q, q, q), x).ops]
    assert names.count("bmm") == 2
    assert names.count("softmax") == 1
    fused = [op.name for op in trace(lambda q: layer(q, q, q, need_weights=False), x).ops]
    assert fused.count("scaled_dot_product_attention") == 1


@pytest.mark.parametrize(
    ("backends", "disabled"),
    [
        ([SDPBackend.FLASH_ATTENTION], ["cuDNN", "memory-efficient"]),
        ([SDPBackend.MATH], ["cuDNN", "FlashAttention 2", "memory-efficient"]),
        ([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION], None),
    ],
)
def test_attention_kernels_that_the_model_disables(
    backends: list[SDPBackend], disabled: list[str] | None
) -> None:
    def attend(x: Tensor) -> Tensor:
        with sdpa_kernel(backends):
            return F.scaled_dot_product_attention(x, x, x)

    op = only(trace(attend, meta(2, 4, 16, 64)), "scaled_dot_product_attention")
    assert op.attributes.get("disabled_kernels") == disabled


def test_the_encoder_layer_takes_no_shortcut() -> None:
    graph = tclint.trace(
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), meta(2, 5, 16)
    )
    kinds = [op.kind for op in graph.ops]
    assert kinds.count("linear") == 4
    assert kinds.count("attention") == 1
    assert kinds.count("norm") == 2


def test_packed_sequences_have_the_packed_size() -> None:
    lstm = nn.LSTM(4, 6, batch_first=True)

    def function(x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 1]), batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]

    graph = trace(function, meta(3, 5, 4))
    assert only(graph, "lstm").input("data").shape == (9, 4)
    assert graph.outputs[0].shape == (3, 5, 6)
    assert graph.assumptions == ()


def test_inputs_of_any_nesting() -> None:
    def function(batch: dict[str, Any]) -> Tensor:
        return batch["image"].mean() + batch["boxes"][1].sum() + batch["scale"]

    inputs = ({"image": meta(2, 3), "boxes": [meta(4), meta(5)], "scale": 2.0},)
    graph = tclint.trace(lambda: Function(function), inputs)
    assert [spec.input_name for spec in graph.inputs] == [
        "inputs[0]['image']",
        "inputs[0]['boxes'][0]",
        "inputs[0]['boxes'][1]",
    ]


def test_the_recorder_is_deterministic() -> None:
    def run() -> Graph:
        return trace(lambda x: F.gelu(x @ x.T).softmax(-1).split(2), meta(4, 4))

    assert run().ops == run().ops


def test_graphs_survive_json() -> None:
    x = meta(2, 5, 16)
    graph = tclint.trace(lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), x)
    assert Graph.from_json(graph.to_json()) == graph


def test_attributes_keep_their_types_and_are_not_mixed_up() -> None:
    def function(x: Tensor) -> list[Tensor]:
        scaled = [x.add(1), x.add(1), x.add(1.0), x.add(True)]
        weight, bias = x[0, :4], x[1, :4]
        norms = [torch.layer_norm(x, (4,), weight=weight), torch.layer_norm(x, (4,), bias=bias)]
        return [*scaled, *norms]

    graph = trace(function, meta(2, 4))
    first, _, floating, truth = (op.attributes for op in graph.ops if op.name == "add")
    assert [type(found["other"]) for found in (first, floating, truth)] == [int, float, bool]
    with_weight, with_bias = (op.attributes for op in graph.ops if op.name == "layer_norm")
    assert ("bias" in with_weight, "weight" in with_weight) == (True, False)
    assert ("bias" in with_bias, "weight" in with_bias) == (False, True)


def test_types_as_text_name_no_device() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            assert y.type() == "torch.FloatTensor"
            return (
                torch.ones(4, 4).type(y.type()) + x.type("torch.cuda.HalfTensor") + y.type(torch.HalfTensor)
            )

    graph = tclint.trace(Mixed, torch.rand(4, 4))
    assert [op.outputs[0].dtype for op in graph.ops if op.name == "to"] == ["float16", "float16"]
