"""What the groups of coupled dims say, and which resizes are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tclint.graph.dims.coupled import CoupledDims, DimsUnresolved
from tclint.graph.dims.resize import restride
from tclint.graph.ops import Graph, Op, Parameter, Site, TensorSpec
from tclint.graph.ops.spec import contiguous_strides


def tensor(*shape: int, **origin: object) -> TensorSpec:
    return TensorSpec(shape, "float32", contiguous_strides(shape), **origin)  # type: ignore[arg-type]


def linear(index: int, x: TensorSpec, weight: str, features: int) -> Op:
    return Op(
        index=index,
        name="linear",
        kind="linear",
        inputs=(x, tensor(features, x.shape[-1], parameter=weight)),
        outputs=(tensor(*x.shape[:-1], features, producer=index),),
        input_names=("input", "weight"),
        attributes={"bias": None},
        call_site=Site("model.py", 10 + index),
    )


def chain(*widths: int, middle: Op | None = None) -> Graph:
    """A stack of linear layers, `w0`, `w1` ..., constructed on lines 1, 2 ...; `middle` after the first."""
    x = tensor(4, widths[0], input_name="x")
    ops: list[Op] = []
    parameters = []
    for number, width in enumerate(widths[1:]):
        parameters.append(
            Parameter(
                f"w{number}",
                (width, x.shape[-1]),
                "float32",
                construct_site=Site("model.py", 1 + number),
            )
        )
        ops.append(linear(len(ops), x, f"w{number}", width))
        x = ops[-1].outputs[0]
        if number == 0 and middle is not None:
            out = replace(x, producer=len(ops))
            ops.append(replace(middle, index=len(ops), inputs=(x,), outputs=(out,), input_names=("self",)))
            x = out
    return Graph(tuple(ops), tuple(parameters), (tensor(4, widths[0], input_name="x"),), (x,))


def test_a_chain_of_layers() -> None:
    dims = CoupledDims(chain(20, 30, 30, 10))
    features, first, second, classes = (
        dims.group_of_parameter(name, axis) for name, axis in (("w0", 1), ("w0", 0), ("w1", 0), ("w2", 0))
    )
    assert features is not None
    assert first is not None
    assert second is not None
    assert classes is not None
    assert first.parameters == (("w0", 0), ("w1", 1))
    assert first.op_indices == (0, 1)
    assert first.sites == (Site("model.py", 1), Site("model.py", 2))
    assert (first.fixed, first.is_batch, first.is_output, first.unresolved) == (None, False, False, None)
    assert first != second, "equal sizes that do not meet are not coupled"
    assert features.fixed == "model input"
    assert classes.is_output
    assert classes.fixed is None
    batch = dims.group_of_input(0, 0, 0)
    assert batch is not None
    assert batch.is_batch
    assert not batch.is_output
    assert batch == dims.group_of_output(2, 0, 0)
    assert dims.groups_of_size(30) == (first, second)


def test_the_next_multiple_of_an_aligned_width_is_that_width() -> None:
    dims = CoupledDims(chain(20, 32, 30, 10))
    aligned, odd = dims.group_of_parameter("w0", 0), dims.group_of_parameter("w1", 0)
    assert aligned is not None
    assert odd is not None
    assert [dims.next_multiple(aligned, multiple) for multiple in (8, 32, 64)] == [32, 32, 64]
    assert [dims.next_multiple(odd, multiple) for multiple in (2, 8, 64)] == [30, 32, 64]


def test_resize_leaves_what_it_does_not_touch() -> None:
    graph = chain(20, 30, 30, 10)
    dims = CoupledDims(graph)
    group = dims.group_of_parameter("w0", 0)
    assert group is not None
    resized = dims.resize({group: 64})
    assert resized.parameters[0].shape == (64, 20)
    assert resized.parameters[1].shape == (30, 64)
    assert resized.parameters[2] is graph.parameters[2]
    assert resized.ops[2] is graph.ops[2]
    assert resized.ops[1].inputs[0] == replace(graph.ops[1].inputs[0], shape=(4, 64), strides=(64, 1))
    assert resized.ops[1].outputs == graph.ops[1].outputs
    assert dims.resize({group: 30}).ops == graph.ops
    assert [op.index for op in resized.ops] == [0, 1, 2]


def test_an_op_that_is_not_modelled_stops_only_what_flows_into_it() -> None:
    middle = Op(0, "mystery", "other", (), (), call_site=Site("model.py", 77), module_path="net.odd")
    dims = CoupledDims(chain(20, 30, 40, 10, middle=middle))
    before, after, last = (
        dims.group_of_parameter(name, axis) for name, axis in (("w0", 0), ("w1", 1), ("w1", 0))
    )
    assert before is not None
    assert after is not None
    assert last is not None
    for group in (before, after):
        assert group.unresolved is not None
        with pytest.raises(DimsUnresolved, match=r"mystery at model\.py:77 in net\.odd: no rule") as error:
            dims.resize({group: 64})
        assert error.value.op is not None
        assert error.value.op.name == "mystery"
    assert last.unresolved is None
    assert dims.resize({last: 64}).parameters[2].shape == (10, 64)


def test_a_rule_that_does_not_fit_counts_as_not_modelled() -> None:
    odd = Op(0, "transpose", "view", (), (), attributes={"dim0": 0, "dim1": 7})
    dims = CoupledDims(chain(20, 30, 10, middle=odd))
    group = dims.group_of_parameter("w0", 0)
    assert group is not None
    with pytest.raises(DimsUnresolved, match="order of axes"):
        dims.resize({group: 64})


def test_sizes_that_make_no_sense_are_refused() -> None:
    dims = CoupledDims(chain(20, 30, 10))
    group = dims.group_of_parameter("w0", 0)
    assert group is not None
    with pytest.raises(DimsUnresolved):
        dims.resize({group: 0})
    with pytest.raises(DimsUnresolved, match="no group of this graph"):
        dims.resize({replace(group, id="d999"): 64})
    assert dims.group_of_parameter("nothing", 0) is None
    assert dims.group_of_parameter("w0", 5) is None
    assert dims.group_of_output(99, 0, 0) is None


@pytest.mark.parametrize(
    ("shape", "strides", "new_shape", "expected"),
    [
        ((2, 3, 4), (12, 4, 1), (2, 8, 4), (32, 4, 1)),
        ((2, 3, 4, 5), (60, 1, 15, 3), (2, 8, 4, 5), (160, 1, 40, 8)),  # channels last stays
        ((2, 4, 3), (12, 1, 4), (2, 8, 3), (24, 1, 8)),  # transposed stays
        ((2, 3, 4), (4, 0, 1), (2, 7, 8), (8, 0, 1)),  # expanded stays
        ((2, 5, 6), (90, 18, 1), (2, 5, 8), (120, 24, 1)),  # a third of a fused projection stays a third
        ((1, 1, 6), (6, 6, 1), (1, 1, 8), (8, 8, 1)),
        ((6,), None, (8,), None),
    ],
)
def test_strides_keep_their_order_in_memory(
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    new_shape: tuple[int, ...],
    expected: tuple[int, ...] | None,
) -> None:
    assert restride(TensorSpec(shape, "float32", strides), new_shape) == expected


def test_large_graphs_are_quick() -> None:
    """96 layers of 32 ops: two linear layers with a residual and elementwise ops between them."""
    x = tensor(8, 512, input_name="x")
    ops: list[Op] = []
    parameters = []
    for layer in range(96):
        start = x
        for name, width in (("up", 2048), ("down", 512)):
            weight = f"{layer}.{name}"
            parameters.append(Parameter(weight, (width, x.shape[-1]), "float32"))
            ops.append(linear(len(ops), x, weight, width))
            x = ops[-1].outputs[0]
            for _ in range(14):
                out = replace(x, producer=len(ops))
                ops.append(Op(len(ops), "gelu", "elementwise", (x,), (out,), ("self",)))
                x = out
        out = replace(x, producer=len(ops))
        ops.append(Op(len(ops), "add", "elementwise", (start, x), (out,), ("self", "other")))
        x = out
    graph = Graph(tuple(ops), tuple(parameters), (tensor(8, 512, input_name="x"),), (x,))
    dims = CoupledDims(graph)
    assert len(dims.groups) == 98
    width = dims.group_of_parameter("0.up", 1)
    assert width is not None
    resized = dims.resize({width: 1024})
    assert resized.parameters[-1].shape == (1024, 2048)


# ------------------------------------------------------------------------------ traced models

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def language_model() -> CoupledDims:
    from dims_models import LanguageModel

    from tclint.tracing import trace_callable

    return CoupledDims(trace_callable(lambda: LanguageModel(24, 101), torch.zeros(2, 16, dtype=torch.long)))


def test_a_tied_vocabulary_is_one_group(language_model: CoupledDims) -> None:
    group = language_model.group_of_parameter("head.weight", 0)
    assert group is not None
    assert group == language_model.group_of_parameter("tokens.weight", 0)
    assert group.is_vocabulary
    assert group.is_output
    assert group.fixed is None
    padded = language_model.resize({group: 128})
    assert padded.outputs[0].shape == (2, 16, 128)
    changed = [op.name for op, old in zip(padded.ops, language_model.graph.ops, strict=True) if op is not old]
    assert changed == ["embedding", "linear"]


def test_a_fused_projection_is_three_times_heads_times_head_dim(language_model: CoupledDims) -> None:
    group = language_model.group_of_parameter("attention.0.qkv.weight", 0)
    assert group is not None
    assert group.composite
    assert group.size == 72
    assert [root.size for root in group.roots] == [4, 6]
    assert language_model.expression("attention.0.qkv.weight", 0) == group.id
    assert language_model.next_multiple(group, 64) == 192
    assert language_model.next_multiple(group, 8) == 72, "what fits already stays"
    by_head_dim = language_model.resize({group: 96})
    attention = next(op for op in by_head_dim.ops if op.kind == "attention")
    assert attention.inputs[0].shape == (2, 4, 16, 8)
    by_heads = language_model.resize({group: 90})
    attention = next(op for op in by_heads.ops if op.kind == "attention")
    assert attention.inputs[0].shape == (2, 5, 16, 6)
    with pytest.raises(DimsUnresolved, match="none of which alone makes it 80"):
        language_model.resize({group: 80})


def test_the_width_of_a_transformer_is_in_several_groups(language_model: CoupledDims) -> None:
    groups = language_model.groups_of_size(24)
    assert [group.composite for group in groups] == [False, True, True]
    resized = language_model.resize(dict.fromkeys(groups, 32))
    shapes = {parameter.name: parameter.shape for parameter in resized.parameters}
    assert shapes["attention.1.qkv.weight"] == (96, 32)
    assert shapes["up.weight"] == (96, 32), "4 * width is a dim of its own"


def test_depthwise_groups_follow_the_channels() -> None:
    from dims_models import MobileNet, ResNext

    from tclint.tracing import trace_callable

    dims = CoupledDims(trace_callable(lambda: MobileNet(30), torch.zeros(2, 3, 16, 16)))
    channels = dims.group_of_parameter("depthwise.weight", 0)
    assert channels is not None
    resized = dims.resize({channels: 192})
    (depthwise,) = (op for op in resized.ops if op.attributes.get("groups", 1) > 1)
    assert depthwise.attributes["groups"] == 192

    dims = CoupledDims(trace_callable(lambda: ResNext(6), torch.zeros(2, 3, 16, 16)))
    channels = dims.group_of_parameter("grouped.weight", 0)
    assert channels is not None
    assert channels.composite
    assert dims.next_multiple(channels, 64) == 64
    (grouped,) = (op for op in dims.resize({channels: 64}).ops if op.attributes.get("groups", 1) > 1)
    assert grouped.attributes["groups"] == 8
    with pytest.raises(DimsUnresolved):
        dims.resize({channels: 50})


def test_batch_and_image_size_can_be_resized_like_any_dim() -> None:
    from dims_models import ResidualCnn

    from tclint.tracing import trace_callable

    dims = CoupledDims(trace_callable(lambda: ResidualCnn(16), torch.zeros(3, 3, 16, 20)))
    batch, height = dims.group_of_input(0, 0, 0), dims.group_of_input(0, 0, 2)
    assert batch is not None
    assert height is not None
    assert batch.is_batch
    assert height.fixed == "model input"
    larger = trace_callable(lambda: ResidualCnn(16), torch.zeros(8, 3, 33, 20))
    resized = dims.resize({batch: 8, height: 33})
    assert [spec.shape for op in resized.ops for spec in op.outputs] == [
        spec.shape for op in larger.ops for spec in op.outputs
    ]


def test_keys_and_values_of_attention_have_one_length() -> None:
    from torch import nn

    from tclint.tracing import trace_callable

    class CrossAttention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, k, v)

    q, k, v = torch.zeros(2, 4, 5, 8), torch.zeros(2, 4, 8, 8), torch.zeros(2, 4, 8, 5)
    dims = CoupledDims(trace_callable(CrossAttention, (q, k, v)))
    assert dims.group_of_input(0, 1, 2) == dims.group_of_input(0, 2, 2)
    assert dims.group_of_input(0, 0, 3) == dims.group_of_input(0, 1, 3)
    assert dims.group_of_output(0, 0, 2) == dims.group_of_input(0, 0, 2)
    assert dims.group_of_output(0, 0, 3) == dims.group_of_input(0, 2, 3)
    length = dims.group_of_input(0, 1, 2)
    assert length is not None
    assert length not in (dims.group_of_input(0, 0, 3), dims.group_of_input(0, 1, 3))
    assert dims.resize({length: 16}).ops[0].outputs == dims.graph.ops[0].outputs


def test_which_part_of_a_concatenation_grows_is_not_guessed() -> None:
    from torch import nn

    from tclint.tracing import trace_callable

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.out = nn.Linear(8, 12), nn.Linear(8, 20), nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(torch.cat((self.left(x), self.right(x)), -1))

    dims = CoupledDims(trace_callable(Joined, torch.zeros(2, 8)))
    joined, left = dims.group_of_parameter("out.weight", 1), dims.group_of_parameter("left.weight", 0)
    assert joined is not None
    assert left is not None
    assert joined.composite
    assert left in joined.roots
    assert dims.next_multiple(joined, 64) is None
    with pytest.raises(DimsUnresolved, match=r"32 is a sum of dims \(12, 20\)"):
        dims.resize({joined: 64})
    shapes = {p.name: p.shape for p in dims.resize({left: 44}).parameters}
    assert shapes["out.weight"] == (4, 64)
    assert dims.resize({joined: 64, left: 44}).parameters == dims.resize({left: 44}).parameters


def test_no_layer_shrinks_because_another_grows() -> None:
    from torch import nn

    from tclint.tracing import trace_callable

    class SumOfConcatenations(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(8, width) for width in (12, 20, 8, 24))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat((self.a(x), self.b(x)), -1) + torch.cat((self.c(x), self.d(x)), -1)

    dims = CoupledDims(trace_callable(SumOfConcatenations, torch.zeros(2, 8)))
    groups = {name: dims.group_of_parameter(f"{name}.weight", 0) for name in "abcd"}
    a, b, c, d = groups.values()
    assert a is not None
    assert b is not None
    assert c is not None
    assert d is not None
    for group in (a, b, c, d):
        assert not group.composite
        with pytest.raises(DimsUnresolved, match=r"sizes (40 and 32|32 and 40) would differ"):
            dims.resize({group: group.size + 8})
    resized = dims.resize({a: 20, c: 16})
    widths = {p.name: p.shape[0] for p in resized.parameters if p.name.endswith("weight")}
    assert widths == {"a.weight": 20, "b.weight": 20, "c.weight": 16, "d.weight": 24}


IMAGE_OPS = {
    "floor pooling": lambda x: torch.nn.functional.max_pool2d(x, 3, 2),
    "ceil pooling": lambda x: torch.nn.functional.max_pool2d(x, 2, 2, ceil_mode=True),
    "padded ceil pooling": lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "sparse ceil pooling": lambda x: torch.nn.functional.avg_pool2d(x, 2, 3, 1, ceil_mode=True),
    "dilated ceil pooling": lambda x: torch.nn.functional.max_pool2d(x, 3, 3, 1, 2, ceil_mode=True),
    "dilated strided convolution": lambda x: torch.nn.functional.conv2d(
        x, torch.zeros(4, 3, 3, 3), stride=2, padding=1, dilation=2
    ),
    "every third row": lambda x: x[:, :, ::3],
    "every third row but the first": lambda x: x[:, :, 1::3],
    "windows": lambda x: x.unfold(2, 4, 3),
    "interpolation": lambda x: torch.nn.functional.interpolate(x, scale_factor=(1.5, 1.0)),
}


@pytest.mark.parametrize("operation", IMAGE_OPS)
def test_image_sizes_follow_as_torch_computes_them(operation: str) -> None:
    from torch import nn

    from tclint.tracing import trace_callable

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return IMAGE_OPS[operation](x)

    dims = CoupledDims(trace_callable(Net, torch.zeros(2, 3, 16, 12)))
    height = dims.group_of_input(0, 0, 2)
    assert height is not None
    for rows in range(7, 24):
        expected = IMAGE_OPS[operation](torch.zeros(2, 3, rows, 12)).shape
        assert dims.resize({height: rows}).outputs[0].shape == tuple(expected), rows


def test_a_width_that_does_not_divide_is_refused() -> None:
    from torch import nn

    from tclint.tracing import trace_callable

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Linear(8, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            value, gate = self.both(x).chunk(2, -1)
            return value * gate

    dims = CoupledDims(trace_callable(Gated, torch.zeros(2, 8)))
    width = dims.group_of_parameter("both.weight", 0)
    assert width is not None
    assert dims.resize({width: 18}).outputs[0].shape == (2, 9)
    with pytest.raises(DimsUnresolved, match="none of which alone makes it 17"):
        dims.resize({width: 17})


def test_a_width_grows_to_what_its_norm_can_divide() -> None:
    from torch import nn

    from tclint.tracing import trace_callable

    net = nn.Sequential(nn.Conv2d(3, 516, 1), nn.GroupNorm(12, 516))
    dims = CoupledDims(trace_callable(lambda: net, torch.zeros(2, 3, 4, 4)))
    width = dims.group_of_parameter("0.weight", 0)
    assert width is not None
    with pytest.raises(DimsUnresolved, match="520 is not a multiple of 12"):
        dims.resize({width: 520})
    assert (dims.next_multiple(width, 8), dims.next_multiple(width, 8, down=True)) == (528, 504)
    assert dims.resize({width: 528}).outputs[0].shape == (2, 528, 4, 4)


def test_an_image_size_whose_half_does_not_divide_is_refused() -> None:
    from torch import nn

    from tclint.tracing import trace_callable

    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.max_pool2d(x, 2).reshape(2, 3, 2, -1, 6).sum(2)

    dims = CoupledDims(trace_callable(Pooled, torch.zeros(2, 3, 16, 12)))
    height = dims.group_of_input(0, 0, 2)
    assert height is not None
    assert dims.resize({height: 20}).outputs[0].shape == (2, 3, 5, 6)
    with pytest.raises(DimsUnresolved, match="9 is not divisible by 2"):
        dims.resize({height: 18})
