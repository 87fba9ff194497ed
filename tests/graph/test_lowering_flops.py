"""Forward FLOPs equal torch's own counter, run on meta tensors (on CPU tensors it misses fused kernels)."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from versions import since_2_5  # noqa: E402

import tclint  # noqa: E402
from tclint.graph.lowering.step import forward_flops, lower  # noqa: E402
from tclint.graph.lowering.work import Attention, Traffic  # noqa: E402

FIXTURES = Path(__file__).parents[2] / "fixtures"
NO_MODELS = ("train_", "gpt3_")  # scripts, and GPT-2 at other sizes
MODELS = sorted(path.stem for path in FIXTURES.glob("*.py") if not path.stem.startswith(NO_MODELS))


def counted(model: nn.Module, args: tuple[Any, ...]) -> int:
    """What torch's counter says of one forward pass on meta tensors."""
    args = tuple(arg.to("meta") if torch.is_tensor(arg) else arg for arg in args)
    with FlopCounterMode(display=False) as counter:
        model.to("meta")(*args)
    return int(counter.get_total_flops())


class Function(nn.Module):
    """A module around a function of its inputs and one parameter `w`."""

    def __init__(self, function: Any, *shape: int) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.zeros(*shape))

    def forward(self, *args: Any) -> Any:
        return self.function(self.w, *args)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(6, 10, num_layers=2, bidirectional=True)

    def forward(self, x: Any) -> Any:
        lengths = torch.tensor([7, 4, 2])
        return self.rnn(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data


class Experts(nn.Module):
    """A soft mixture: every token through every expert."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.up = nn.Parameter(torch.zeros(4, 8, 24))
        self.down = nn.Parameter(torch.zeros(4, 24, 8))

    def forward(self, x: Any) -> Any:
        hidden = torch.einsum("btd,edh->bteh", x, self.up).relu()
        return torch.einsum("bteh,ehd,bte->btd", hidden, self.down, self.gate(x).softmax(-1))


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=True)


def rand(*shape: int) -> Any:
    return torch.rand(*shape)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "linear 1d": (lambda: nn.Linear(6, 5), (rand(6),)),
    "linear 4d": (lambda: nn.Linear(6, 5), (rand(2, 3, 4, 6),)),
    "linear without bias": (lambda: nn.Linear(6, 5, bias=False), (rand(2, 3, 6),)),
    "linear of a transpose": (
        lambda: Function(lambda w, x: F.linear(x.mT, w), 5, 6),
        (rand(2, 6, 3),),
    ),
    "matmul 3d @ 2d": (lambda: Function(lambda w, x: x @ w, 6, 5), (rand(2, 3, 6),)),
    "matmul 2d @ 3d": (lambda: Function(lambda w, x: w @ x, 5, 6), (rand(2, 6, 3),)),
    "matmul 1d @ 2d": (lambda: Function(lambda w, x: x @ w, 6, 5), (rand(6),)),
    "matmul broadcast": (lambda: Function(lambda w, x: x @ w, 2, 1, 6, 5), (rand(4, 3, 6),)),
    "bmm": (lambda: Function(torch.bmm, 2, 3, 4), (rand(2, 4, 5),)),
    "addmm": (lambda: Function(lambda w, x: torch.addmm(w[0], x, w), 6, 5), (rand(3, 6),)),
    "baddbmm": (lambda: Function(lambda w, x: torch.baddbmm(w, x, x), 2, 3, 3), (rand(2, 3, 3),)),
    "einsum": (lambda: Function(lambda w, x: torch.einsum("bhi,hij->bhj", x, w), 4, 6, 5), (rand(3, 4, 6),)),
    "tensordot": (lambda: Function(lambda w, x: torch.tensordot(x, w, 2), 4, 6, 5), (rand(3, 4, 6),)),
    "inner": (lambda: Function(torch.inner, 5, 6), (rand(2, 3, 6),)),
    "experts": (Experts, (rand(2, 3, 8),)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, dilation=2, padding="same"), (rand(2, 4, 20),)),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 5), stride=(2, 1), padding=1), (rand(2, 4, 9, 11),)),
    "conv2d without batch": (lambda: nn.Conv2d(4, 6, 3), (rand(4, 9, 11),)),
    "conv2d grouped": (lambda: nn.Conv2d(8, 12, 3, groups=4), (rand(2, 8, 9, 9),)),
    "conv2d depthwise": (lambda: nn.Conv2d(8, 16, 3, groups=8), (rand(2, 8, 9, 9),)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3), (rand(1, 2, 5, 6, 7),)),
    "transposed conv1d": (lambda: nn.ConvTranspose1d(4, 6, 5, stride=2), (rand(2, 4, 9),)),
    "transposed conv2d": (
        lambda: nn.ConvTranspose2d(8, 12, 3, stride=2, padding=1, output_padding=1, groups=4),
        (rand(2, 8, 5, 7),),
    ),
    "transposed conv3d": (lambda: nn.ConvTranspose3d(4, 2, 2, stride=2), (rand(1, 4, 3, 4, 5),)),
    "sdpa": (
        lambda: Function(lambda w, q, k: F.scaled_dot_product_attention(q, k, k), 1),
        (rand(2, 4, 9, 16), rand(2, 4, 7, 16)),
    ),
    "sdpa with values of another size": (
        lambda: Function(lambda w, q, v: F.scaled_dot_product_attention(q, q, v), 1),
        (rand(2, 4, 9, 16), rand(2, 4, 9, 12)),
    ),
    "sdpa causal, odd head dim": (
        lambda: Function(lambda w, q: F.scaled_dot_product_attention(q, q, q, is_causal=True), 1),
        (rand(2, 4, 9, 13),),
    ),
    "sdpa masked, 3d": (
        lambda: Function(lambda w, q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), 1),
        (rand(4, 9, 16), rand(9, 9)),
    ),
    "sdpa with grouped heads": (
        lambda: Function(lambda w, q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), 1),
        (rand(2, 8, 9, 16), rand(2, 2, 9, 16)),
    ),
    "multi-head attention": (SelfAttention, (rand(2, 5, 16),)),
    "lstm": (lambda: nn.LSTM(6, 10, num_layers=2, bidirectional=True), (rand(7, 3, 6),)),
    "lstm with projection": (
        lambda: nn.LSTM(6, 10, num_layers=2, proj_size=4, batch_first=True),
        (rand(3, 7, 6),),
    ),
    "lstm without batch or bias": (lambda: nn.LSTM(6, 10, bias=False), (rand(7, 6),)),
    "gru": (lambda: nn.GRU(6, 10, num_layers=3, batch_first=True), (rand(3, 7, 6),)),
    "rnn": (lambda: nn.RNN(6, 10, nonlinearity="relu"), (rand(7, 3, 6),)),
    "packed gru": (Packed, (rand(7, 3, 6),)),
    "lstm cell": (lambda: nn.LSTMCell(6, 10), (rand(3, 6),)),
    "gru cell": (lambda: nn.GRUCell(6, 10), (rand(3, 6),)),
    "rnn cell": (lambda: nn.RNNCell(6, 10), (rand(3, 6),)),
    "transformer": (
        lambda: nn.Transformer(16, 2, 2, 2, 32, batch_first=True),
        (rand(2, 5, 16), rand(2, 7, 16)),
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=since_2_5) if "grouped" in name else name for name in CASES]
)
def test_equals_the_counter(name: str) -> None:
    build, args = CASES[name]
    expected = counted(build(), args)
    assert expected > 0
    assert forward_flops(tclint.trace(build, args)) == expected


# Why each differs from the counter; everything else must be equal.
NOT_COUNTED: dict[str, tuple[Any, tuple[Any, ...], int]] = {
    # The counter knows mm, addmm, bmm, baddbmm, convolution and attention, but not mv.
    "mv": (lambda: Function(torch.mv, 6, 5), (rand(5),), 2 * 6 * 5),
    # Nor addbmm, which is one addmm per batch entry inside its kernel.
    "addbmm": (
        lambda: Function(torch.addbmm, 3, 5),
        (rand(2, 3, 4), rand(2, 4, 5)),
        2 * 2 * 3 * 5 * 4,
    ),
    # Nor distances, which torch computes as a product with two columns appended.
    "cdist": (lambda: Function(torch.cdist, 30, 5), (rand(40, 5),), 2 * 30 * 40 * 7),
    # Nor _trilinear, whose products run below the operators that a counter can see.
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), (rand(7, 3), rand(7, 4)), 2 * 7 * 3 * 4 * 5),
}


@pytest.mark.parametrize("name", NOT_COUNTED)
def test_where_the_counter_is_blind(name: str) -> None:
    build, args, expected = NOT_COUNTED[name]
    assert counted(build(), args) == 0
    assert forward_flops(tclint.trace(build, args)) == expected


@cache
def load(name: str) -> Any:
    """The fixture's module."""
    module_spec = importlib.util.spec_from_file_location(name, FIXTURES / f"{name}.py")
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


FEWER_STEPS: dict[str, dict[str, int]] = {"gnmt": {"length": 12}, "tacotron2": {"frames": 12}}
"""Loops over time count the same in every round."""


def inputs_of(name: str) -> tuple[torch.Tensor, ...]:
    given: tuple[torch.Tensor, ...] = load(name).example_inputs(**FEWER_STEPS.get(name, {}))
    return given


# Forward and backward agree with the counter too, except where it counts something else:
DIFFERENT_BACKWARD = {
    "mobilenet_v2": "the counter takes the weight gradient of a grouped convolution as if it had one group",
    "resnext101_32x4d": "the same",
    "big_lstm": "torch's own loop skips the gradient of the first state, which cuDNN computes",
    "gnmt": "the same",
    "tacotron2": "the same",
}


@pytest.mark.parametrize("name", MODELS)
def test_fixtures_equal_the_counter(name: str) -> None:
    """Nothing that matters is left without a formula, forward and backward."""
    module = load(name)
    graph = tclint.trace(module.build_model, inputs_of(name))
    kernels, gaps = lower(graph, "train")
    with torch.device("meta"):
        model = module.build_model()
    assert graph.parameter_count == sum(parameter.numel() for parameter in model.parameters())
    # WaveGlow's log-determinants of 8x8 matrices have no formula, and are said not to.
    assert {gap.name for gap in gaps} == ({"linalg_slogdet"} if name == "waveglow" else set())
    with FlopCounterMode(display=False) as counter:
        given = [arg.to("meta") if torch.is_tensor(arg) else arg for arg in inputs_of(name)]
        outputs = [tensor for tensor in flattened(model(*given)) if tensor.requires_grad]
        assert forward_flops(graph) == counter.get_total_flops()
        if name in DIFFERENT_BACKWARD:
            return
        torch.autograd.backward(outputs, [torch.empty_like(tensor) for tensor in outputs])
    ours = 0
    for kernel in kernels:
        if isinstance(kernel.work, Attention) and kernel.work.is_backward:
            # Fused attention computes Q K^T again; on meta tensors torch runs it unfused, with scores saved.
            ours += kernel.flops * 4 // 5
        elif not isinstance(kernel.work, Traffic):
            ours += kernel.flops
    assert ours == counter.get_total_flops()


def flattened(value: Any) -> list[Any]:
    """The tensors of a nested structure."""
    if torch.is_tensor(value):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    return [tensor for item in values for tensor in flattened(item)]
