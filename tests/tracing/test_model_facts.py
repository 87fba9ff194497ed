"""Parameters, module paths, guesses, inputs, and that nothing of the trace stays behind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tclint
from tclint.core.errors import TargetError


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.norm.weight.requires_grad_(False)
        self.register_buffer("table", torch.zeros(3, 4))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.embed(tokens).mean(1)) + self.table[0])


def test_parameters_and_buffers() -> None:
    graph = tclint.trace(Tied, meta(2, 5, dtype=torch.int64))
    by_name = {parameter.name: parameter for parameter in graph.parameters}
    assert by_name["embed.weight"].aliases == ("head.weight",)
    assert by_name["embed.weight"].trainable
    assert not by_name["norm.weight"].trainable
    assert by_name["norm.bias"].trainable
    assert by_name["table"].is_buffer
    assert not by_name["table"].trainable
    assert by_name["norm.num_batches_tracked"].dtype == "int64"
    assert "head.weight" not in by_name
    assert graph.parameter_count == 10 * 4 + 4 + 4
    line = inspect.getsourcelines(Tied)[1]
    assert by_name["embed.weight"].construct_site is not None
    assert by_name["embed.weight"].construct_site.line == line + 3


def test_a_parameter_that_is_a_buffer_as_well_is_trained() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4, bias=False)
            self.register_buffer("weight", self.fc.weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x) @ self.weight

    graph = tclint.trace(Doubled, torch.rand(2, 4))
    (parameter,) = graph.parameters
    assert (parameter.name, parameter.trainable, parameter.aliases) == ("fc.weight", True, ("weight",))
    assert [op.inputs[1].parameter for op in graph.ops] == ["fc.weight", "fc.weight"]


def test_the_tied_weight_has_one_name_in_the_ops() -> None:
    graph = tclint.trace(Tied, meta(2, 5, dtype=torch.int64))
    (linear,) = [op for op in graph.ops if op.name == "linear"]
    weight = linear.input("weight")
    assert weight is not None
    assert weight.parameter == "embed.weight"


def test_weights_computed_from_weights_are_marked() -> None:
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 6))
    graph = tclint.trace(lambda: model, meta(2, 4))
    linear = graph.ops[-1]
    assert linear.inputs[1].parameter == "parametrizations.weight.original1"
    assert linear.inputs[1].producer is not None
    assert linear.outputs[0].parameter is None


def test_lazy_layers_get_their_shapes() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.LazyConv2d(6, 3)
            self.fc = nn.LazyLinear(5)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.conv(x).flatten(1))

    graph = tclint.trace(Net, meta(2, 3, 8, 8))
    shapes = {parameter.name: parameter.shape for parameter in graph.parameters}
    assert shapes["conv.weight"] == (6, 3, 3, 3)
    assert shapes["fc.weight"] == (5, 6 * 6 * 6)
    (linear,) = [op for op in graph.ops if op.name == "linear"]
    assert linear.inputs[1].parameter == "fc.weight"


def test_module_paths_and_types() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)
            return nn.Softmax(dim=-1)(x) * 2

    graph = tclint.trace(Net, meta(2, 4))
    assert [(op.name, op.module_path, op.module_type) for op in graph.ops] == [
        ("linear", "blocks.0.0", "Linear"),
        ("relu", "blocks.0.1", "ReLU"),
        ("linear", "blocks.1.0", "Linear"),
        ("relu", "blocks.1.1", "ReLU"),
        ("softmax", "<Softmax>", "Softmax"),
        ("mul", "", "Net"),
    ]


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        if y.sum() > 0:
            y = y * 2
        for _ in range(int(y.max().item())):
            y = self.fc(y)
        return y


def test_guesses_are_assumptions_with_their_lines() -> None:
    graph = tclint.trace(Branching, meta(2, 4))
    first = inspect.getsourcelines(Branching.forward)[1]
    found = {
        assumption.what: (Path(assumption.site.path).name, assumption.site.line)
        for assumption in graph.assumptions
        if assumption.site
    }
    assert found == {
        "condition on traced data: False assumed": (Path(__file__).name, first + 2),
        "value of a traced tensor: 1.0 assumed": (Path(__file__).name, first + 4),
    }
    assert [op.name for op in graph.ops].count("linear") == 2


class SizedByWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(512, 512)
        self.head = nn.Linear(512, 100 + int(self.fc.weight.abs().sum().item()))
        self.act = nn.ReLU() if self.fc.weight.mean() > 0 else nn.GELU()
        self.kept = int((torch.rand(60, 100) > 0.5).nonzero().shape[0])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.fc(x)))


def test_guesses_of_a_build_are_assumptions_as_well() -> None:
    first = inspect.getsourcelines(SizedByWeights.__init__)[1]
    for inputs in (meta(2, 512), None):
        graph = tclint.trace(SizedByWeights, inputs)
        found = [(item.what, item.site.line - first) for item in graph.assumptions if item.site]
        assert found == [
            ("value of a weight or table: 1.0 assumed, while building", 3),
            ("condition on a weight or table: False assumed, while building", 4),
            ("nonzero of a weight or table: all 6000 elements assumed to be selected, while building", 5),
        ]


def test_a_build_that_fails_after_a_guess_is_tried_with_the_opposite() -> None:
    def is_sound(weight: Tensor) -> bool:
        return bool(weight.std() < 10)

    class Sound(nn.Linear):
        def __init__(self) -> None:
            super().__init__(300, 300)
            if is_sound(self.weight):
                self.scale = 2.0
            _ = 1 / self.scale

    graph = tclint.trace(Sound, meta(2, 300))
    assert [item.what for item in graph.assumptions] == [
        "condition on a weight or table: True assumed, while building"
    ]

    class Unsound(nn.Linear):
        def __init__(self) -> None:
            super().__init__(300, 300)
            raise ValueError("sound" if is_sound(self.weight) else "unsound")

    with pytest.raises(TargetError, match="ValueError: unsound"):
        tclint.trace(Unsound, meta(2, 300))


def test_a_guess_that_fails_is_turned_round() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not x.sum() > 0:
                raise ValueError("needs positive data")
            return x * 2

    graph = tclint.trace(Net, meta(2, 4))
    assert [op.name for op in graph.ops][-1] == "mul"
    assert "True assumed" in graph.assumptions[0].what


def test_cond_takes_its_first_branch() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))

    graph = tclint.trace(Net, meta(2, 4))
    assert [op.name for op in graph.ops] == ["sum", "gt", "sin"]
    assert "first branch assumed" in graph.assumptions[0].what


def test_the_error_of_the_model_is_the_first_one() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                raise KeyError("second")
            raise ValueError("first")

    with pytest.raises(TargetError, match="ValueError: first"):
        tclint.trace(Net, meta(2, 4))


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        chosen = self.router(x).topk(2, dim=-1).indices
        for index, expert in enumerate(self.experts):
            token, _ = torch.where(chosen == index)
            out[token] += expert(x[token])
        return out


def test_tokens_are_spread_evenly_over_experts() -> None:
    graph = tclint.trace(Experts, meta(32, 8))
    rows = [op.inputs[0].shape[0] for op in graph.ops if op.module_path.startswith("experts.")]
    assert rows == [16] * 4  # 32 tokens, 2 of 4 experts each
    assert [assumption.count for assumption in graph.assumptions] == [4]


@pytest.mark.parametrize(
    ("layer", "shape", "dtype"),
    [
        (nn.Conv2d(5, 8, 3), (8, 5, 224, 224), "float32"),
        (nn.Conv1d(5, 8, 3), (8, 5, 1024), "float32"),
        (nn.Conv3d(5, 8, 3), (8, 5, 96, 96, 96), "float32"),
        (nn.Embedding(100, 8), (8, 128), "int64"),
        (nn.Linear(12, 8), (8, 12), "float32"),
        (nn.LSTM(12, 8), (128, 8, 12), "float32"),
        (nn.GRU(12, 8, batch_first=True), (8, 128, 12), "float32"),
        (nn.TransformerEncoderLayer(16, 2, batch_first=True), (8, 128, 16), "float32"),
    ],
)
def test_inputs_are_inferred_from_the_first_layer(layer: nn.Module, shape: Any, dtype: str) -> None:
    graph = tclint.trace(lambda: layer)
    assert [(spec.shape, spec.dtype) for spec in graph.inputs] == [(shape, dtype)]
    assert f"= {dtype}[{','.join(map(str, shape))}]" in graph.assumptions[0].what


def test_inputs_that_cannot_be_inferred() -> None:
    class Two(nn.Module):
        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return left + right

    with pytest.raises(TargetError, match=r"takes 2 arguments \(left, right\).*inputs="):
        tclint.trace(Two)


def test_build_may_return_inputs() -> None:
    graph = tclint.trace(lambda: (nn.Linear(4, 2), meta(3, 4)))
    assert graph.inputs[0].shape == (3, 4)
    assert graph.assumptions == ()


def test_keyword_inputs() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
            return x if mask is None else x * mask

    graph = tclint.trace(Net, meta(3, 4), {"mask": meta(3, 4)})
    assert [spec.input_name for spec in graph.inputs] == ["x", "mask"]
    assert len(graph.ops) == 1


def test_channels_last_is_kept() -> None:
    x = meta(2, 8, 6, 6).to(memory_format=torch.channels_last)
    graph = tclint.trace(lambda: nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()), x)
    assert {op.outputs[0].memory_format for op in graph.ops} == {"channels_last"}


def test_a_given_model_keeps_its_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    before = {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    tclint.trace(lambda: model, torch.randn(5, 4))
    after = model.state_dict(keep_vars=True)
    for name, (tensor, value) in before.items():
        assert after[name] is tensor
        assert torch.equal(tensor, value)
    assert model(torch.randn(5, 4)).shape == (5, 3)


def _everything_patched() -> dict[str, Any]:
    return {
        "call": nn.Module.__call__,
        "init": nn.Module.__init__,
        "module.cuda": nn.Module.cuda,
        "module.compile": nn.Module.compile,
        "compile": torch.compile,
        "script": torch.jit.script,
        "apply": torch.autograd.Function.__dict__.get(
            "apply", torch.autograd.function.Function.__dict__["apply"]
        ),
        "autocast": (torch.autocast.__enter__, torch.autocast.__exit__),
        "uniform": nn.init._no_grad_uniform_,
        "normal": nn.init._no_grad_normal_,
        "synchronize": torch.cuda.synchronize,
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "lazy": nn.parameter.UninitializedTensorMixin.materialize,
        "modes": torch.utils._python_dispatch._get_current_dispatch_mode_stack(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
    }


def _fails_to_build() -> nn.Module:
    raise RuntimeError("no")


class FailsToRun(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda"):
            return F.linear(x, torch.ones(3, 7))


@pytest.mark.parametrize("build", [lambda: nn.Linear(4, 4), _fails_to_build, FailsToRun])
def test_nothing_of_the_trace_stays_behind(build: Callable[[], nn.Module]) -> None:
    before = _everything_patched()
    try:
        tclint.trace(build, meta(2, 4))
    except TargetError:
        assert build is not None
    assert _everything_patched() == before


def test_building_needs_no_memory() -> None:
    def build() -> nn.Module:
        return nn.Sequential(*(nn.Linear(200_000, 200_000, bias=False) for _ in range(3)))

    graph = tclint.trace(build, meta(1, 200_000))
    assert graph.parameter_count == 3 * 200_000**2


def test_a_failing_forward_names_module_line_and_inputs() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(9, 9))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    with pytest.raises(TargetError) as caught:
        tclint.trace(Net, torch.empty(8, 3, 224, 224))
    message = str(caught.value)
    line = inspect.getsourcelines(Net.forward)[1] + 1
    assert "in body.1 (Linear)" in message
    assert f"test_model_facts.py:{line}" in message
    assert "float32[8,3,224,224]" in message
    assert "inputs=" in message
    assert "\n" not in message


def test_loops_of_higher_order_operators_are_unrolled() -> None:
    from torch._higher_order_ops.map import map as map_over
    from torch._higher_order_ops.while_loop import while_loop

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            _, x = while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, self.fc(x)), (torch.tensor(0), x))
            x = map_over(self.fc, x)
            _, x = while_loop(
                lambda _, x: x.sum() > 0, lambda i, x: (i + 1, self.fc(x)), (torch.tensor(0), x)
            )
            return x

    graph = tclint.trace(Net, torch.empty(2, 4))
    assert [op.inputs[0].shape for op in graph.ops if op.name == "linear"] == [(2, 4)] * 3 + [(4,)] * 2 + [
        (2, 4)
    ]
    assert [guess.what for guess in graph.assumptions] == ["while_loop on traced data: one iteration assumed"]
    assert graph.outputs[0].shape == (2, 4)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.hessian])
def test_derivatives_inside_of_a_forward(transform: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.vmap(transform(lambda p: self.down(self.up(p).tanh()).sum()))(x)

    graph = tclint.trace(Net, torch.empty(3, 4))
    assert graph.outputs[0].shape == ((3, 4) if transform is torch.func.grad else (3, 4, 4))
    backward = [op for op in graph.ops if op.name == "tanh_backward"]
    assert backward  # and not zeros for a derivative


def test_a_forward_that_yields_is_run() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Any:
            for _ in range(3):
                x = self.fc(x)
                yield x

    graph = tclint.trace(Steps, torch.empty(2, 4))
    assert [op.name for op in graph.ops] == ["linear"] * 3
    assert len(graph.outputs) == 3


def test_a_module_without_a_forward_is_named() -> None:
    with pytest.raises(TargetError, match="returned a ModuleList, which has no forward to trace"):
        tclint.trace(lambda: nn.ModuleList([nn.Linear(4, 4)]), torch.empty(2, 4))


def test_wrappers_for_several_processes_are_seen_through() -> None:
    def build() -> nn.Module:
        torch.distributed.init_process_group("nccl")
        inner = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
        wrapped = nn.parallel.DistributedDataParallel(inner, device_ids=[torch.distributed.get_rank()])
        wrapped.to(torch.distributed.get_rank())
        assert wrapped.module is inner
        return wrapped

    graph = tclint.trace(build, torch.empty(2, 8))
    assert [(op.name, op.module_path) for op in graph.ops] == [("linear", "module.0"), ("relu", "module.1")]
    assert [parameter.name for parameter in graph.parameters] == ["module.0.weight", "module.0.bias"]


def test_a_sharded_model_is_traced_as_one() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    def build() -> nn.Module:
        return FullyShardedDataParallel(nn.Sequential(nn.Linear(8, 4)), device_id=0)

    graph = tclint.trace(build, torch.empty(2, 8))
    assert [op.name for op in graph.ops] == ["linear"]
    assert {parameter.shape for parameter in graph.parameters} == {(4, 8), (4,)}


def test_a_cache_that_is_written_leaves_attention_whole() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)
            self.register_buffer("k", torch.zeros(2, 32, 16))
            self.register_buffer("v", torch.zeros(2, 32, 16))

        def forward(self, x: Tensor, position: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            self.k[:, position], self.v[:, position] = k, v
            end = int(position[-1]) + 1
            return F.scaled_dot_product_attention(q, self.k[:, :end], self.v[:, :end])

    graph = tclint.trace(Cached, (torch.empty(2, 1, 16), torch.tensor([5])))
    (attention,) = [op for op in graph.ops if op.kind == "attention"]
    assert attention.inputs[1].shape == (2, 6, 16)
