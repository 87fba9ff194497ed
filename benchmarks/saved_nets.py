"""Small random nets that train, for what autograd keeps of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]


class Layer(nn.Module):
    """A function of a tensor and of parts that have weights."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module, **buffers: Tensor) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parts, *self._buffers.values())


# Functions that keep the shape, of images [N, C, H, W] and of tokens [N, L, D].
POINTWISE: dict[str, Function] = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu_(x * 1.0),
    "leaky relu": lambda x: F.leaky_relu(x, 0.1),
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "softplus": F.softplus,
    "elu": F.elu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "swish": lambda x: x * torch.sigmoid(x),
    "exp": lambda x: torch.exp(-x),
    "log1p": lambda x: torch.log1p(x.abs()),
    "root": lambda x: torch.sqrt(x * x + 1),
    "reciprocal root": lambda x: torch.rsqrt(x.square() + 1),
    "reciprocal": lambda x: 1 / (1 + x * x),
    "cube": lambda x: x**3,
    "power": lambda x: x.abs().pow(1.5),
    "sine": torch.sin,
    "arc tangent": torch.atan,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp in place": lambda x: (x + 0.0).clamp_(min=0),
    "minimum": lambda x: torch.minimum(x, x.roll(1, -1)),
    "where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "where of a number": lambda x: torch.where(x > 0, x, 0.0),
    "masked": lambda x: x.masked_fill(x < 0, 0.0),
    "halved": lambda x: x / 2,
    "by itself": lambda x: x * x,
    "residual": lambda x: x + torch.relu(x),
    "gated": lambda x: x * torch.sigmoid(x.mean(-1, keepdim=True)),
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "standardized": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5),
    "by its variance": lambda x: x * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5),
    "by its norm": lambda x: F.normalize(x, dim=-1),
    "less its largest": lambda x: x - x.amax(-1, keepdim=True),
    "less its maximum": lambda x: x - x.max(-1, keepdim=True).values,
    "less its log sum": lambda x: x - x.logsumexp(-1, keepdim=True),
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(1),
    "cumulated": lambda x: x.cumsum(-1),
    "products": lambda x: (x * 0.1 + 1).cumprod(-1),
    "flipped": lambda x: x.flip(-1),
    "rolled": lambda x: x.roll(1, 1),
    "sorted": lambda x: x.sort(-1).values,
    "the largest": lambda x: x * x.topk(2, -1).values.sum(-1, keepdim=True),
    "transposed": lambda x: torch.relu(x.transpose(1, -1).contiguous()).transpose(1, -1),
    "halves": lambda x: torch.cat([part * (1 + number) for number, part in enumerate(x.chunk(2, 1))], 1),
    "halves multiplied": lambda x: torch.cat([torch.mul(*x.chunk(2, 1))] * 2, 1),
    "detached": lambda x: x * torch.relu(x).detach(),
    "stacked": lambda x: torch.stack((x, -x)).sum(0),
    "lerp": lambda x: torch.lerp(x, x.tanh(), 0.3),
    "spectrum": lambda x: torch.fft.fft(x, dim=-1).real,
    "spectrum's size": lambda x: torch.fft.fft(x, dim=-1).abs(),
    "filtered": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=-1) * 0.5, n=x.shape[-1], dim=-1),
    "imaginary": lambda x: torch.fft.fft(x, dim=1).imag,
    "inverse": lambda x: torch.fft.ifft(x, dim=1).real,
    "longer spectrum": lambda x: torch.fft.fft(x, n=2 * x.shape[-1], dim=-1).abs()[..., : x.shape[-1]],
    "shorter spectrum": lambda x: F.pad(torch.fft.rfft(x, n=4, dim=-1).real, (0, x.shape[-1] - 3)),
    "mixed by its spectrum": lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=1).real,
}
"""Functions of a tensor whose second dim is even."""


def _pad(mode: str) -> Function:
    return lambda x: F.pad(x, (1, 1, 1, 1), mode=mode)[..., 1:-1, 1:-1] * 1.0


def _pad_line(mode: str) -> Function:
    return lambda x: F.avg_pool1d(F.pad(x.transpose(1, 2), (1, 1), mode=mode), 3, 1).transpose(1, 2)


IMAGES: dict[str, Function] = {
    **{f"pad {mode}": _pad(mode) for mode in ("constant", "reflect", "replicate", "circular")},
    "max pool": lambda x: F.max_pool2d(x, 2),
    "average pool": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (4, 4)),
    "adaptive maximum": lambda x: F.adaptive_max_pool2d(x, (4, 4)),
    "squeezed": lambda x: x * torch.sigmoid(F.adaptive_avg_pool2d(x, 1)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    "shuffled": lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2) if x.shape[1] % 4 == 0 else x,
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "instance norm": F.instance_norm,
    "2-D spectrum": lambda x: torch.fft.fft2(x).real,
    "2-D filter": lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]),
    "unfolded": lambda x: F.fold(F.unfold(x, 3, padding=1) * 0.1, x.shape[-2:], 3, padding=1),
    "response norm": lambda x: F.local_response_norm(x, 3),
}
TOKENS: dict[str, Function] = {
    **{f"pad {mode}": _pad_line(mode) for mode in ("constant", "reflect", "replicate", "circular")},
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "RMS norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "self attention": lambda x: (x @ x.mT / 4).softmax(-1) @ x,
    "linear attention": lambda x: x.softmax(-1) @ (x.softmax(1).mT @ x),
    "products of pairs": lambda x: torch.einsum("bid,bjd,bjd->bid", x, x, x.tanh()),
    "picked": lambda x: x.index_select(1, torch.arange(x.shape[1] - 1, -1, -1)),
    "gathered": lambda x: x.gather(1, x.argsort(1)),
}


def _module(chance: random.Random, channels: int) -> tuple[nn.Module, int]:
    """A layer of images that has weights, and the channels that it makes."""
    modes = ("zeros", "reflect", "replicate", "circular")
    more = chance.choice((4, 8, 12))
    kind = chance.randrange(9)
    if kind < 3:
        return nn.Conv2d(channels, more, 3, padding=1, padding_mode=chance.choice(modes)), more
    if kind == 3:
        return nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False), channels
    if kind == 4:
        return nn.ConvTranspose2d(channels, more, 3, padding=1), more
    if kind == 5:
        return nn.BatchNorm2d(channels, affine=chance.random() < 0.7), channels
    if kind == 6:
        return nn.GroupNorm(2, channels), channels
    if kind == 7:
        return Layer(_squeeze, nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)), channels
    inner = nn.Conv2d(channels, channels, 3, padding=1)
    return Layer(lambda x, conv: torch.cat((x, F.relu(conv(x))), 1), inner), 2 * channels


def _squeeze(x: Tensor, down: nn.Module, up: nn.Module) -> Tensor:
    return x * torch.sigmoid(up(F.relu(down(x.mean((2, 3), keepdim=True)))))


def _sequence_module(chance: random.Random, width: int, length: int) -> nn.Module:
    mask = torch.tril(torch.ones(length, length))
    return chance.choice(
        [
            lambda: nn.Linear(width, width),
            lambda: nn.Linear(width, width, bias=False),
            lambda: nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
            lambda: Layer(_gated, nn.Linear(width, 2 * width), nn.Linear(width, width)),
            lambda: Layer(_attention, nn.Linear(width, 3 * width), nn.Linear(width, width), mask=mask),
            lambda: Layer(_biased_attention, nn.Linear(width, 2 * width), mask=mask),
            lambda: nn.LayerNorm(width),
            lambda: Layer(lambda x, norm: x + norm(x), nn.LayerNorm(width)),
            lambda: Layer(lambda x, conv: conv(x.mT).mT, nn.Conv1d(width, width, 3, padding=1)),
            lambda: Layer(
                lambda x, conv: conv(x.mT).mT, nn.Conv1d(width, width, 3, padding=1, padding_mode="replicate")
            ),
            lambda: Layer(lambda x, scale: x * scale, scale=torch.rand(width)),
            lambda: Layer(lambda x, mask: x * (mask[:, :1] > 0), mask=mask),
        ]
    )()


def _gated(x: Tensor, up: nn.Module, down: nn.Module) -> Tensor:
    left, right = up(x).chunk(2, -1)
    return down(F.silu(left) * right)


def _attention(x: Tensor, qkv: nn.Module, out: nn.Module, mask: Tensor) -> Tensor:
    batch, length, width = x.shape
    q, k, v = qkv(x).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
    scores = (q @ k.mT / 4).masked_fill(mask[:length, :length] == 0, float("-inf"))
    return x + out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


def _biased_attention(x: Tensor, qk: nn.Module, mask: Tensor) -> Tensor:
    q, k = qk(x).chunk(2, -1)
    scores = torch.where(mask.bool(), q @ k.mT, torch.finfo(x.dtype).min)
    return scores.softmax(-1) @ x


def net(seed: int) -> tuple[nn.Module, Tensor, list[str]]:
    """A net in training mode, its input, and what it is made of."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    names: list[str] = []
    is_image = chance.random() < 0.5
    count = chance.randint(2, 6)
    if is_image:
        channels = 3
        x = torch.randn(2, channels, 16, 16)
        layers.append(nn.Conv2d(3, 8, 3, padding=1))
        channels = 8
        for _ in range(count):
            if chance.random() < 0.4:
                layer, channels = _module(chance, channels)
                names.append(repr(layer).splitlines()[0])
                layers.append(layer)
            else:
                _add(chance, layers, names, {**POINTWISE, **IMAGES})
        layers.append(nn.Conv2d(channels, 4, 1))
    else:
        width, length = chance.choice((16, 24, 32)), chance.choice((8, 12))
        x = torch.randn(3, length, width)
        layers.append(nn.Linear(width, width))
        for _ in range(count):
            if chance.random() < 0.4:
                layer = _sequence_module(chance, width, length)
                names.append(repr(layer).splitlines()[0])
                layers.append(layer)
            else:
                _add(chance, layers, names, {**POINTWISE, **TOKENS})
        layers.append(nn.Linear(width, 4))
    return nn.Sequential(*layers).train(), x, names


def _add(
    chance: random.Random, layers: list[nn.Module], names: list[str], functions: dict[str, Function]
) -> None:
    name = chance.choice(sorted(functions))
    names.append(name)
    layers.append(Layer(functions[name]))


def really_saved_bytes(model: nn.Module, inputs: Sequence[Any]) -> int:
    """Bytes of the distinct storages that autograd keeps, those of parameters and buffers excepted."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    seen: dict[int, int] = {}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)  # alive, so that no address is given out twice
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.dim():
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(*inputs)
    return sum(seen.values())
