"""The trace of a model against what the same model really does on the CPU with real numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import tclint
from tclint.tracing.values.operators import facts_of, is_whole_slice


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(20, 33), nn.GELU(), nn.Dropout(0.0), nn.LayerNorm(33), nn.Linear(33, 7)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).log_softmax(-1)


class Residual(nn.Module):
    def __init__(self, channels: int = 12) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, stride=1)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x
        return F.adaptive_avg_pool2d(y.relu_(), 1).flatten(1)


class Separable(nn.Module):
    """Depthwise and pointwise convolutions with squeeze-and-excite."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(16, 16, 5, padding=2, groups=16)
        self.reduce = nn.Conv2d(16, 4, 1)
        self.expand = nn.Conv2d(4, 16, 1)
        self.point = nn.Conv2d(16, 24, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.depthwise(x))
        scale = torch.sigmoid(self.expand(F.silu(self.reduce(x.mean((2, 3), keepdim=True)))))
        return F.max_pool2d(self.point(x * scale), 2)


class Encoder(nn.Module):
    """A small U-Net: transposed convolution and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Conv2d(7, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(F.leaky_relu(self.down(x), 0.1))
        y = F.interpolate(self.out(torch.cat([x, y], 1)), scale_factor=2, mode="bilinear")
        return F.pad(y, (1, 2, 0, 1)).transpose(1, 2).reshape(x.shape[0], -1)


class Attention(nn.Module):
    def __init__(self, *, heads: int = 4, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = ((q @ k.transpose(-1, -2)) / 8).softmax(-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.lstm = nn.LSTM(12, 20, num_layers=2, bidirectional=True, batch_first=True)
        self.cell = nn.GRUCell(40, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        outputs, (hidden, _) = self.lstm(self.embed(tokens))
        state = self.cell(outputs[:, 0])
        for step in range(1, 3):
            state = self.cell(outputs[:, step], state)
        return torch.cat([state, hidden[-1]], dim=-1)


class Mixed(nn.Module):
    """Explicit half precision, several dtypes, reductions with indices."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Linear(16, 16).to(torch.bfloat16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.low(x.bfloat16()).float() + x
        values, indices = y.topk(3, dim=-1)
        picked = torch.gather(y, 1, indices) * (values > 0)
        return picked.sum(), y.argmax(-1).to(torch.int32)


class Products(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        c = torch.bmm(a, b.transpose(1, 2))
        c = torch.baddbmm(c, a, b.mT, beta=0.5, alpha=2.0)
        return torch.addmm(c[0], c[0], c[1].t()) - c.permute(1, 2, 0)[..., 0]


def _channels_last(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "mlp": (Mlp, lambda: (torch.randn(5, 20),)),
    "residual, training": (Residual, lambda: (torch.randn(2, 12, 9, 9),)),
    "residual, evaluation": (lambda: Residual().eval(), lambda: (torch.randn(2, 12, 9, 9),)),
    "residual, channels last": (
        lambda: Residual().to(memory_format=torch.channels_last),
        lambda: (_channels_last(2, 12, 9, 9),),
    ),
    "separable": (Separable, lambda: (torch.randn(2, 16, 10, 10),)),
    "separable, channels last": (Separable, lambda: (_channels_last(2, 16, 10, 10),)),
    "u-net": (Encoder, lambda: (torch.randn(2, 3, 8, 8),)),
    "u-net, channels last": (Encoder, lambda: (_channels_last(2, 3, 8, 8),)),
    "fused attention": (lambda: Attention(fused=True), lambda: (torch.randn(2, 6, 32),)),
    "written-out attention": (lambda: Attention(fused=False), lambda: (torch.randn(2, 6, 32),)),
    "recurrent": (Recurrent, lambda: (torch.randint(0, 50, (3, 5)),)),
    "mixed dtypes": (Mixed, lambda: (torch.randn(4, 16),)),
    "products": (Products, lambda: (torch.randn(3, 4, 5), torch.randn(3, 4, 5))),
    "multi-head attention": (
        lambda: nn.MultiheadAttention(16, 2, batch_first=True),
        lambda: (torch.randn(2, 5, 16),) * 3,
    ),
}

Metadata = tuple[tuple[int, ...], str, tuple[int, ...]]


def _metadata(tensor: Tensor) -> Metadata:
    return (
        tuple(tensor.shape),
        str(tensor.dtype).removeprefix("torch."),
        _meaningful(tensor.shape, tensor.stride()),
    )


def _meaningful(shape: Any, strides: Any) -> tuple[int, ...]:
    # The stride of a dim of size 1 says nothing, and kernels differ in what they leave there.
    return tuple(stride for size, stride in zip(shape, strides, strict=True) if size != 1)


class PlainRecorder(TorchDispatchMode):
    """Writes down what runs, and changes nothing."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[Metadata], list[Metadata]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        facts = facts_of(func)
        assert facts is not None
        given = _flat([*args, *(kwargs or {}).values()])
        before = [_metadata(tensor) for tensor in given]
        output = func(*args, **(kwargs or {}))
        made = _flat([output])
        handed_back = not facts.mutates and all(any(one is other for other in given) for one in made)
        # Batch norm's step counter is the model's bookkeeping, not work on data.
        counter = given and given[0].dim() == 0 and given[0].dtype == torch.int64
        if given and not handed_back and not counter and not is_whole_slice(facts, args):
            self.calls.append((facts.name, before, [_metadata(tensor) for tensor in made]))
        return output


def _flat(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _flat(value)
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_trace_is_what_really_runs(case: str) -> None:
    build, make_inputs = CASES[case]
    inputs = make_inputs()
    graph = tclint.trace(build, inputs)

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        recorder = PlainRecorder()
        with torch.inference_mode(), torch.enable_grad(), recorder:
            build_real(build)(*inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)

    traced = [
        (
            op.name,
            [(spec.shape, spec.dtype, _meaningful(spec.shape, spec.strides)) for spec in op.inputs],
            [(spec.shape, spec.dtype, _meaningful(spec.shape, spec.strides)) for spec in op.outputs],
        )
        for op in graph.ops
    ]
    assert [call[0] for call in traced] == [call[0] for call in recorder.calls]
    for have, want in zip(traced, recorder.calls, strict=True):
        assert have == want


def build_real(build: Callable[[], nn.Module]) -> nn.Module:
    """The model with real weights, built outside of the recorder that is running."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch.inference_mode(False):
        return build()
