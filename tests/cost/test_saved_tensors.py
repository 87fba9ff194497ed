"""Predicted saved tensors against what torch.autograd.graph.saved_tensors_hooks sees on the CPU."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tclint
from tclint.cost.memory.saved_tensors import saved_tensors
from tclint.cost.transforms.casts import apply_precision

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
benchmark = importlib.import_module("saved_tensors")


def really_saved_bytes(model: nn.Module, inputs: tuple[torch.Tensor, ...], autocast: bool = False) -> int:
    """Bytes of the distinct storages that autograd keeps, parameters and casts of them excepted."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    seen: dict[int, int] = {}
    kept: list[torch.Tensor] = []
    copies = [p.detach().bfloat16() for p in model.parameters()] if autocast else []

    def is_weight_copy(tensor: torch.Tensor) -> bool:
        views = (view for copy in copies for view in ((copy, copy.t()) if copy.dim() == 2 else (copy,)))
        return any(tensor.shape == view.shape and torch.equal(tensor, view) for view in views)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)  # alive, so that no address is given out twice
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.dim() and not is_weight_copy(tensor):
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        model(*inputs)
    return sum(seen.values())


class Lambda(nn.Module):
    """Submodules and a function of them."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def _residual(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = torch.relu_(m.bn1(m.conv1(x)))
    return F.relu(m.bn2(m.conv2(y)) + x)


def _attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    q, k, v = m.qkv(x).reshape(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return x + m.out(y.transpose(1, 2).reshape(batch, length, width))


def _manual_attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape

    def heads(y: torch.Tensor) -> torch.Tensor:
        return y.view(batch, length, 4, width // 4).transpose(1, 2)

    scores = heads(m.q(x)) @ heads(m.k(x)).transpose(-2, -1) / 4.0
    y = scores.softmax(-1) @ heads(m.v(x))
    return m.out(y.transpose(1, 2).reshape(batch, length, width))


def _language_model(m: Any, tokens: torch.Tensor) -> torch.Tensor:
    x = m.embed(tokens)
    x = x + m.down(F.gelu(m.up(m.norm(x))))
    logits = m.head(x)
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def _swiglu(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.down(F.silu(m.gate(x)) * m.up(x))


def _pooled(m: Any, x: torch.Tensor) -> torch.Tensor:
    x = F.max_pool2d(F.hardswish(m.conv(x)), 2)
    x = F.avg_pool2d(F.leaky_relu(x, 0.1), 2)
    gate = torch.sigmoid(m.squeeze(F.adaptive_avg_pool2d(x, 1)))
    return m.head(F.adaptive_avg_pool2d(x * gate, 1).flatten(1))


def _dense(m: Any, x: torch.Tensor) -> torch.Tensor:
    a = m.a(x)
    b = m.b(torch.cat([x, a], 1))
    return F.interpolate(torch.cat([x, a, b], 1), scale_factor=2)


def _unet(m: Any, x: torch.Tensor) -> torch.Tensor:
    a = F.elu(m.down(x))
    up = m.up(F.hardtanh_(m.mid(a)))
    return m.last(torch.cat([up, x], 1)).tanh()


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)),
        (torch.randn(16, 32),),
    ),
    "residual block": (
        lambda: Lambda(
            _residual,
            conv1=nn.Conv2d(16, 16, 3, padding=1, bias=False),
            bn1=nn.BatchNorm2d(16),
            conv2=nn.Conv2d(16, 16, 3, padding=1, bias=False),
            bn2=nn.BatchNorm2d(16),
        ),
        (torch.randn(4, 16, 12, 12),),
    ),
    "fused attention": (
        lambda: Lambda(_attention, qkv=nn.Linear(64, 192), out=nn.Linear(64, 64)),
        (torch.randn(4, 24, 64),),
    ),
    "attention of parts": (
        lambda: Lambda(_manual_attention, **{name: nn.Linear(64, 64) for name in ("q", "k", "v", "out")}),
        (torch.randn(4, 24, 64),),
    ),
    "language model": (
        lambda: Lambda(
            _language_model,
            embed=nn.Embedding(100, 32),
            norm=nn.LayerNorm(32),
            up=nn.Linear(32, 128),
            down=nn.Linear(128, 32),
            head=nn.Linear(32, 100, bias=False),
        ),
        (torch.randint(0, 100, (4, 16)),),
    ),
    "swiglu": (
        lambda: Lambda(
            _swiglu,
            gate=nn.Linear(32, 96, bias=False),
            up=nn.Linear(32, 96, bias=False),
            down=nn.Linear(96, 32, bias=False),
        ),
        (torch.randn(4, 8, 32),),
    ),
    "pooling and squeeze-excite": (
        lambda: Lambda(
            _pooled, conv=nn.Conv2d(3, 16, 3), squeeze=nn.Conv2d(16, 16, 1), head=nn.Linear(16, 10)
        ),
        (torch.randn(4, 3, 18, 18),),
    ),
    "dense block": (
        lambda: Lambda(
            _dense,
            a=nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3, padding=1)),
            b=nn.Sequential(nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 4, 1)),
        ),
        (torch.randn(2, 8, 16, 16),),
    ),
    "u-net": (
        lambda: Lambda(
            _unet,
            down=nn.Conv2d(4, 8, 2, stride=2),
            mid=nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)),
            up=nn.ConvTranspose2d(8, 4, 2, stride=2),
            last=nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.InstanceNorm2d(4, affine=True)),
        ),
        (torch.randn(2, 4, 16, 16),),
    ),
    "1-d convolutions": (
        lambda: nn.Sequential(
            nn.Conv1d(8, 16, 5, padding=2),
            nn.BatchNorm1d(16),
            nn.SiLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 8, 1),
        ),
        (torch.randn(4, 8, 64),),
    ),
    "frozen layers": (
        lambda: nn.Sequential(
            nn.Linear(32, 32).requires_grad_(False),
            nn.ReLU(),
            nn.Linear(32, 32),
            nn.Sigmoid(),
            nn.Linear(32, 32).requires_grad_(False),
        ),
        (torch.randn(16, 32),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_saved_bytes_are_those_that_torch_keeps(name: str) -> None:
    build, inputs = CASES[name]
    model = build().train()
    really = really_saved_bytes(model, inputs)
    graph = tclint.trace(lambda: build().train(), inputs)
    saved = saved_tensors(graph)
    assert not saved.unknown
    assert saved.bytes == pytest.approx(really, rel=0.02), {
        graph.ops[index].name: [(s.key, s.bytes) for s in kept] for index, kept in saved.by_op.items()
    }


@pytest.mark.parametrize("seed", range(8))
def test_random_nets_keep_what_torch_keeps(seed: int) -> None:
    error, names, unknown = benchmark.deviation(seed)
    assert not unknown
    assert abs(error) <= benchmark.TOLERANCE, names


class Masks(nn.Module):
    """One mask in several layers, made once or anew."""

    def __init__(self, mask: Callable[[torch.Tensor], torch.Tensor], layers: int) -> None:
        super().__init__()
        self.mask, self.layers = mask, layers
        self.linear = nn.Linear(8, 8)
        self.register_buffer("ones", torch.tril(torch.ones(64, 64)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        mask = self.mask(self.ones)
        for _ in range(self.layers):
            x = x.masked_fill(mask, -1.0)
        return x


@pytest.mark.parametrize(
    "mask",
    [
        lambda ones: ones[:8, :8] == 0,
        lambda ones: (ones == 0)[:8, :8],  # all of it is kept
        lambda ones: ones[:8, :8].bool(),
        lambda ones: torch.ones(8, 8).tril() == 0,
        lambda ones: torch.ones(8, 8, dtype=torch.bool).triu(1),
    ],
)
def test_a_mask_that_several_layers_read_is_kept_once(
    mask: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = torch.randn(3, 8, 8)
    for layers in (1, 3):
        really = really_saved_bytes(Masks(mask, layers).train(), (x,))
        assert saved_tensors(tclint.trace(Masks(mask, layers).train(), (x,))).bytes == really


@pytest.mark.parametrize("name", ["mlp", "residual block", "swiglu", "dense block"])
def test_under_autocast_the_converted_tensors_are_kept(name: str) -> None:
    build, inputs = CASES[name]
    really = really_saved_bytes(build().train(), inputs, autocast=True)
    graph = apply_precision(tclint.trace(lambda: build().train(), inputs), "bf16", "train")
    assert saved_tensors(graph).bytes == pytest.approx(really, rel=0.02)


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_whole_networks_keep_what_torch_keeps(name: str) -> None:
    path = Path(__file__).parents[2] / "fixtures" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs = (torch.randn(2, 3, 64, 64),)
    really = really_saved_bytes(module.build_model().train(), inputs)
    graph = tclint.trace(lambda: module.build_model().train(), inputs)
    # The classifier's dropout keeps a byte per element on a GPU, a float on the CPU.
    assert saved_tensors(graph).bytes == pytest.approx(really, rel=0.002)


def test_dropout_keeps_a_byte_per_element_and_none_in_eval_mode() -> None:
    inputs = (torch.randn(16, 32),)

    def build(training: bool) -> nn.Module:
        return nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.1)).train(training)

    training = saved_tensors(tclint.trace(lambda: build(True), inputs)).bytes
    evaluating = saved_tensors(tclint.trace(lambda: build(False), inputs)).bytes
    assert training - evaluating == 16 * 64


def test_an_unknown_operator_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(self.weight + x)

    saved = saved_tensors(tclint.trace(Odd, (torch.randn(8, 8),)))
    assert sum(saved.unknown.values()) >= 1


class Last(nn.Module):
    """The outputs of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


@pytest.mark.parametrize(("kind", "reserve_bytes"), [(nn.LSTM, 736_000_000), (nn.GRU, 864_000_000)])
def test_cudnns_reserve_is_as_large_as_it_was_seen(kind: type[nn.RNNBase], reserve_bytes: int) -> None:
    """Sizes that cuDNN asked for: pytorch/pytorch issue 2895."""
    graph = tclint.trace(lambda: Last(kind(123, 320, 4)), torch.empty(1000, 25, 123, device="meta"))
    (op,) = (op for op in graph.ops if op.kind == "rnn")
    states = sum(spec.bytes for spec in op.inputs if spec.parameter is None)
    assert saved_tensors(graph).bytes == reserve_bytes + states + op.outputs[0].bytes


def test_both_directions_of_a_layer_go_to_the_next() -> None:
    graph = tclint.trace(
        lambda: Last(nn.LSTM(8, 16, 2, bidirectional=True)), torch.empty(5, 3, 8, device="meta")
    )
    (op,) = (op for op in graph.ops if op.kind == "rnn")
    states = sum(spec.bytes for spec in op.inputs if spec.parameter is None)
    reserve = 4 * 5 * 3 * (2 * 2 * 5 * 16 + 2 * 16)
    assert saved_tensors(graph).bytes == reserve + states + op.outputs[0].bytes
