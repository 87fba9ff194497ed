"""The derived backward against real ones: the same products, of the same shapes, as often."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from graph_support import backward_products, recorded_products  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tclint  # noqa: E402
from tclint.graph.lowering.step import lower  # noqa: E402
from tclint.graph.lowering.work import Gemm  # noqa: E402


class Block(nn.Module):
    """A transformer block with attention written out."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        head_dim = width // self.heads
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        weights = ((q @ k.transpose(-2, -1)) * head_dim**-0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.conv1(x)), inplace=True)
        x = F.relu(x + self.conv2(x))
        return self.head(self.depthwise(self.up(x)).mean((2, 3)))


def frozen_layers(*frozen: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
    for index in frozen:
        model[index].requires_grad_(False)
    return model


def frozen_backbone() -> nn.Module:
    model = Residual()
    for layer in (model.conv1, model.norm, model.conv2):
        layer.requires_grad_(False)
    return model


class Products(nn.Module):
    """Every function that multiplies matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(4, 6, 5))
        self.v = nn.Parameter(torch.rand(7, 3))
        self.m = nn.Parameter(torch.rand(6, 9))

    def forward(self, x: Any) -> Any:  # (3, 4, 6)
        return (
            torch.einsum("bhi,hij->bhj", x, self.w),
            torch.tensordot(x, self.w, dims=([1, 2], [0, 1])),
            torch.inner(x, self.w[:, :, 0]),
            self.v @ x.transpose(0, 1).reshape(4, 3, -1),
            x @ self.m,
            x.mT @ self.w[0, :4],
            torch.addmm(self.m[0], x[0], self.m),
            torch.baddbmm(self.w[:3, :4, :4], x, x.mT),
            torch.bmm(self.w, self.w.mT),
            x @ self.m[:, 1],
            self.m[:, 0] @ x[0, 0],
            self.m @ self.m[0],
        )


class Tied(nn.Module):
    """An embedding whose weight is the output layer too, and a linear layer of a transposed input."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.layer = nn.Linear(6, 5)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        return F.linear(x, self.embedding.weight), self.layer(x.transpose(0, 1))


class Cuts(nn.Module):
    """detach, no_grad, integers, an unused branch, and a gradient through an in-place write to a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d, self.e = (nn.Linear(6, 6) for _ in range(5))

    def forward(self, x: Any) -> Any:
        used = self.b(self.a(x).detach())
        with torch.no_grad():
            fixed = self.c(used)
        self.c(used)
        buffer = x.new_zeros(3, 12)
        buffer[:, :6] = self.d(x)
        chosen = self.e(x).argmax(-1)
        return (
            used * fixed,
            F.linear(buffer, x.new_ones(4, 12)),
            F.one_hot(chosen, 6),
        )


class CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, 10)

    def forward(self, x: Any) -> Any:
        state = x.new_zeros(3, 10)
        for step in x:
            state = self.cell(step, state)
        return state


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "mlp": (frozen_layers, (torch.rand(3, 8),)),
    "transformer": (lambda: nn.Sequential(Block(), Block()), (torch.rand(2, 5, 16),)),
    "resnet": (Residual, (torch.rand(2, 3, 8, 8),)),
    "frozen first layers": (lambda: frozen_layers(0, 2), (torch.rand(3, 8),)),
    "frozen middle layer": (lambda: frozen_layers(2), (torch.rand(3, 8),)),
    "frozen all": (lambda: frozen_layers(0, 2, 4), (torch.rand(3, 8),)),
    "frozen backbone": (frozen_backbone, (torch.rand(2, 3, 8, 8),)),
    "products": (Products, (torch.rand(3, 4, 6),)),
    "tied weights": (Tied, (torch.randint(0, 20, (4, 3)),)),
    "cuts": (Cuts, (torch.rand(3, 6),)),
    "loop over a cell": (CellLoop, (torch.rand(4, 3, 6),)),
}


@pytest.mark.parametrize("name", CASES)
def test_same_products_as_a_recorded_backward(name: str) -> None:
    build, args = CASES[name]
    kernels, gaps = lower(tclint.trace(build, args), "train")
    derived = backward_products(kernels)
    assert not gaps
    model = build()
    if not any(parameter.requires_grad for parameter in model.parameters()):
        assert not derived
        return
    assert derived
    assert derived == recorded_products(model, args)


@pytest.mark.parametrize(
    ("build", "layers", "gates"),
    [
        (lambda: nn.LSTM(6, 10, num_layers=2), 2, 4),
        (lambda: nn.LSTM(6, 10, bidirectional=True), 2, 4),
        (lambda: nn.GRU(6, 10, num_layers=2), 2, 3),
        (lambda: nn.RNN(6, 10), 1, 1),
    ],
)
def test_recurrent_backward_flops(build: Any, layers: int, gates: int) -> None:
    """torch's own loop on the CPU multiplies per step what cuDNN batches over time, so FLOPs are compared.

    It also skips the gradient of the state before the first step, which cuDNN always computes.
    """
    length, batch, hidden = 5, 3, 10
    args = (torch.rand(length, batch, 6),)
    kernels, _ = lower(tclint.trace(build, args), "train")
    derived = sum(
        kernel.flops for kernel in kernels if kernel.phase == "backward" and isinstance(kernel.work, Gemm)
    )
    with torch.backends.mkldnn.flags(enabled=False):
        recorded = recorded_products(build(), args)
    flops = sum(2 * key[1] * key[2] * key[3] * key[4] * count for key, count in recorded.items())
    assert derived == flops + layers * 2 * batch * gates * hidden * hidden


def test_kernels_come_forward_then_backward_in_reverse_order() -> None:
    build, args = CASES["transformer"]
    kernels, _ = lower(tclint.trace(build, args), "train")
    phases = [kernel.phase for kernel in kernels]
    turn = phases.index("backward")
    assert set(phases[turn:]) == {"backward"}
    forward, backward = [k.op_index for k in kernels[:turn]], [k.op_index for k in kernels[turn:]]
    assert forward == sorted(forward)
    assert backward == sorted(backward, reverse=True)


def test_inference_has_no_backward_and_the_same_forward_products() -> None:
    build, args = CASES["resnet"]
    graph = tclint.trace(build, args)
    inference, _ = lower(graph, "infer")
    training, _ = lower(graph, "train")
    assert {kernel.phase for kernel in inference} == {"forward"}

    def flops(kernels: Any) -> int:
        return sum(k.flops for k in kernels if k.phase == "forward" and k.role == "forward")

    assert flops(inference) > 0
    products = [k for k in training if k.phase == "forward" and hasattr(k.work, "direction")]
    assert products == [k for k in inference if hasattr(k.work, "direction")]
