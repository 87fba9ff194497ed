"""Small nets put together at random, each at two sizes: what a padding says of them has to be true."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Width = tuple[int, int]
"""(size, larger size)."""


@dataclass(frozen=True)
class Build:
    """Which of the two sizes a net is built at."""

    is_larger: bool

    def __call__(self, width: Width) -> int:
        return width[self.is_larger]


class Function(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


# Of tensors whose last axis is the width, [batch, length, width].
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "swish": lambda x: x * torch.sigmoid(x),
    "softplus": F.softplus,
    "exp": lambda x: torch.exp(x / 10),
    "cos": torch.cos,
    "square": torch.square,
    "square root": lambda x: torch.sqrt(x * x + 1),
    "root of it": lambda x: torch.sqrt(x * x),
    "logarithm": lambda x: torch.log(x * x + 0.5),
    "log of it": lambda x: torch.log1p(x.abs()),
    "reciprocal": lambda x: 1 / (1 + x * x),
    "shifted": lambda x: x + 0.5,
    "one minus": lambda x: 1 - x,
    "halved": lambda x: x * 0.5,
    "clamped": lambda x: x.clamp(-0.3, 0.4),
    "clamped above zero": lambda x: x.clamp(min=0.1),
    "softmax": lambda x: x.softmax(-1),
    "softmax over the length": lambda x: x.softmax(1),
    "normalized": lambda x: F.normalize(x, dim=-1),
    "normalized over the length": lambda x: F.normalize(x, dim=1),
    "divided by its norm": lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-3),
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "centred over the length": lambda x: x - x.mean(1, keepdim=True),
    "scaled by its sum": lambda x: x * x.sum(-1, keepdim=True),
    "less its largest": lambda x: x - x.amax(-1, keepdim=True),
    "less its sum": lambda x: x - x.sum(-1, keepdim=True),
    "by root of width": lambda x: x / math.sqrt(x.shape[-1]),
    "times width": lambda x: x * x.shape[-1] ** -0.5,
    "by width": lambda x: x / x.shape[-1],
    "mean as a sum": lambda x: x - x.sum(-1, keepdim=True) / x.shape[-1],
    "numbered": lambda x: x * torch.arange(x.shape[-1], dtype=x.dtype),
    "numbered from the end": lambda x: x * torch.arange(x.shape[-1], 0, -1, dtype=x.dtype),
    "cumulated": lambda x: x.cumsum(-1),
    "cumulated over the length": lambda x: x.cumsum(1),
    "flipped": lambda x: x.flip(-1),
    "rolled": lambda x: x.roll(1, -1),
    "with ones": lambda x: x + torch.ones(x.shape[-1], dtype=x.dtype),
    "first part": lambda x: x + x[..., :1],
    "last part": lambda x: x + x[..., -1:],
    "of both signs": lambda x: torch.where(x > 0, x, x * 0.1),
    "masked": lambda x: x.masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool()[0, :, None], 0.3),
    "sorted": lambda x: x.sort(-1).values,
    "largest": lambda x: torch.maximum(x, x.mean(1, keepdim=True)),
    "standardized over the length": lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 0.1),
    "varying over the length": lambda x: x / (x.var(1, keepdim=True) + 0.1),
}


class Gate(nn.Module):
    """Two projections as one, taken apart in several ways."""

    def __init__(self, width: int, inner: int, kind: str) -> None:
        super().__init__()
        self.inner, self.kind = inner, kind
        self.up, self.down = nn.Linear(width, 2 * inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.kind == "glu":
            return self.down(F.glu(x, -1))
        if self.kind == "chunk":
            left, right = x.chunk(2, -1)
        elif self.kind == "slice":
            left, right = x[..., : self.inner], x[..., self.inner :]
        elif self.kind == "pairs":
            left, right = x[..., ::2], x[..., 1::2]
        else:
            left, right = x.unflatten(-1, (self.inner, 2)).unbind(-1)
        return self.down(F.silu(left) * right)


class Attention(nn.Module):
    """Queries, keys and values from one projection in several orders, multiplied in several ways."""

    def __init__(self, width: int, heads: int, head: int, order: str, product: str, bias: bool) -> None:
        super().__init__()
        self.heads, self.head, self.order, self.product = heads, head, order, product
        self.qkv = nn.Linear(width, 3 * heads * head, bias=bias)
        self.out = nn.Linear(heads * head, width)
        self.scale = head**-0.5

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        x = self.qkv(x)
        if self.order == "qkv heads":
            query, key, value = x.view(batch, length, 3, self.heads, self.head).permute(2, 0, 3, 1, 4)
        elif self.order == "heads qkv":
            x = x.view(batch, length, self.heads, 3 * self.head).transpose(1, 2)
            query, key, value = x.chunk(3, -1)
        elif self.order == "heads of qkv":
            query, key, value = x.view(batch, length, self.heads, 3, self.head).permute(3, 0, 2, 1, 4)
        else:
            query, key, value = (
                part.view(batch, length, self.heads, self.head).transpose(1, 2)
                for part in x.split(self.heads * self.head, -1)
            )
        return self.out(self.attend(query, key, value).transpose(1, 2).reshape(batch, length, -1))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.product == "fused":
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        if self.product == "fused with scale":
            return F.scaled_dot_product_attention(query, key, value, scale=self.scale)
        if self.product == "of constant scale":
            return (query @ key.transpose(-1, -2) * 0.3).softmax(-1) @ value
        if self.product == "cosine":
            return (F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT).softmax(-1) @ value
        if self.product == "linear":
            return (F.elu(query) + 1) @ ((F.elu(key) + 1).mT @ value) / query.shape[2]
        if self.product == "baddbmm":
            flat = [tensor.flatten(0, 1) for tensor in (query, key.mT)]
            scores = torch.baddbmm(torch.zeros(1, 1, 1).to(query), *flat, beta=0, alpha=self.scale)
            return scores.view(*query.shape[:3], -1).softmax(-1) @ value
        if self.product == "einsum":
            scores = torch.einsum("bhld,bhsd->bhls", query, key) / math.sqrt(query.shape[-1])
            return torch.einsum("bhls,bhsd->bhld", scores.softmax(-1), value)
        mask = torch.full((query.shape[2], query.shape[2]), -math.inf).triu(1).to(query)
        return (query * self.scale @ key.mT + mask).softmax(-1) @ value


class Rotary(nn.Module):
    """Halves of the head turned into each other."""

    def __init__(self, head: int) -> None:
        super().__init__()
        self.register_buffer("rates", 100 ** -(torch.arange(0, head, 2) / head), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[1]).to(x), self.rates.to(x))
        cosine, sine = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        left, right = x.chunk(2, -1)
        return x * cosine + torch.cat((-right, left), -1) * sine


class Recurrent(nn.Module):
    def __init__(self, width: int, hidden: int, kind: str, layers: int, both: bool) -> None:
        super().__init__()
        cell = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[kind]
        self.cell = cell(width, hidden, layers, batch_first=True, bidirectional=both)
        self.out = nn.Linear(hidden * (2 if both else 1), width)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x)[0])


class Joined(nn.Module):
    """Two branches side by side, taken together or apart again."""

    def __init__(self, width: int, first: int, second: int, kind: str) -> None:
        super().__init__()
        self.sizes, self.kind = (first, second), kind
        self.first, self.second = nn.Linear(width, first), nn.Linear(width, second)
        self.out = nn.Linear(first + second, width)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat((torch.relu(self.first(x)), torch.sigmoid(self.second(x))), -1)
        if self.kind == "split":
            left, right = x.split(self.sizes, -1)
            x = torch.cat((left * 2, right.tanh()), -1)
        return self.out(x)


class Bank(nn.Module):
    """Convolutions along the length: grouped, depthwise, transposed; several norms."""

    def __init__(self, width: int, inner: int, groups: int, kind: str, norm: str) -> None:
        super().__init__()
        self.up = nn.Conv1d(width, groups * inner, 3, padding=1)
        size = groups * inner
        if kind == "depthwise":
            self.middle: nn.Module = nn.Conv1d(size, size, 3, padding=1, groups=size, bias=False)
        elif kind == "multiplied":
            self.middle = nn.Conv1d(size, 2 * size, 3, padding=1, groups=size)
        elif kind == "transposed":
            self.middle = nn.ConvTranspose1d(size, size, 3, padding=1, groups=groups)
        else:
            self.middle = nn.Conv1d(size, size, 1, groups=groups)
        if kind == "weight norm":
            self.middle = nn.utils.parametrizations.weight_norm(self.middle)
        size = 2 * size if kind == "multiplied" else size
        norms: dict[str, Callable[[], nn.Module]] = {
            "batch": lambda: nn.BatchNorm1d(size),
            "instance": lambda: nn.InstanceNorm1d(size, affine=True),
            "group": lambda: nn.GroupNorm(groups, size),
            "none": nn.Identity,
        }
        self.norm = norms[norm]()
        self.kind, self.groups = kind, groups
        self.down = nn.Conv1d(size, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm(self.middle(self.up(x.mT))))
        if self.kind == "shuffled":
            x = x.unflatten(1, (self.groups, -1)).transpose(1, 2).flatten(1, 2)
        return self.down(x).mT


class Squeeze(nn.Module):
    """Channels weighted by what their means say."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.down(F.relu(self.up(x.mean(1))))).unsqueeze(1)


class Norm(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.norm = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "batch": nn.BatchNorm1d}[kind](width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT if self.kind == "batch" else self.norm(x)


class Frozen(nn.Module):
    """A batch norm whose statistics are constants, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.variance + 1e-3).rsqrt()
        return x * scale + (self.bias - self.mean * scale)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def layer(build: Build, width: Width, description: tuple[Any, ...]) -> nn.Module:
    """A layer [batch, length, width] -> the same, as (kind, whether residual, arguments)."""
    kind, is_residual, *given = description
    size = build(width)
    made: nn.Module
    if kind == "function":
        made = Function(FUNCTIONS[given[0]])
    elif kind == "mlp":
        inner = build(given[0])
        function = Function(FUNCTIONS[given[1]])
        made = nn.Sequential(nn.Linear(size, inner, bias=given[2]), function, nn.Linear(inner, size))
    elif kind == "rotary":
        inner = build(given[0])
        made = nn.Sequential(nn.Linear(size, inner), Rotary(inner), nn.Linear(inner, size))
    elif kind == "frozen":
        made = Frozen(size)
    elif kind == "squeeze":
        made = Squeeze(size, build(given[0]))
    elif kind == "norm":
        made = Norm(size, given[0])
    elif kind == "gate":
        made = Gate(size, build(given[0]), given[1])
    elif kind == "attention":
        made = Attention(size, build(given[0]), build(given[1]), *given[2:])
    elif kind == "recurrent":
        made = Recurrent(size, build(given[0]), *given[1:])
    elif kind == "joined":
        made = Joined(size, build(given[0]), build(given[1]), given[2])
    else:
        made = Bank(size, build(given[0]), *given[1:])
    return Residual(made) if is_residual else made


class Net(nn.Module):
    """Layers of one width between a stem and a head."""

    def __init__(
        self, is_larger: bool, width: Width, layers: list[tuple[Any, ...]], ends: tuple[Any, ...]
    ) -> None:
        super().__init__()
        build = Build(is_larger)
        size = build(width)
        stem, self.head_kind, vocabulary = ends
        self.stem: nn.Module = (
            nn.Embedding(build(vocabulary), size) if stem == "words" else nn.Linear(5, size)
        )
        self.layers = nn.Sequential(*(layer(build, width, description) for description in layers))
        if self.head_kind == "tied" and stem == "words":
            self.head: nn.Module = nn.Linear(size, build(vocabulary), bias=False)
            self.head.weight = self.stem.weight
        elif self.head_kind == "flat":
            self.head = nn.Linear(4 * size, 3)
        else:
            self.head = nn.Linear(size, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.stem(x))
        if self.head_kind == "features":
            return x
        if self.head_kind == "flat":
            return self.head(x.flatten(1))
        if self.head_kind == "probabilities":
            return self.head(x.mean(1)).softmax(-1)
        return self.head(x)


def nets(width: Width, layers: list[tuple[Any, ...]], ends: tuple[Any, ...], seed: int) -> tuple[Net, Net]:
    """The net at both sizes, the smaller one with weights and statistics that are not zeros and ones."""
    made = []
    for is_larger in (False, True):
        torch.manual_seed(seed)
        made.append(Net(is_larger, width, layers, ends))
    with torch.no_grad():
        for name, tensor in (*made[0].named_parameters(), *made[0].named_buffers()):
            if not tensor.is_floating_point() or name.endswith("rates"):
                continue
            if name.endswith(("running_var", "variance")):
                tensor.uniform_(0.5, 2)
            elif "weight" in name and tensor.dim() > 1:
                tensor.normal_(0, 0.5 / math.sqrt(tensor.shape[-1]))
            else:
                tensor.normal_(0.3, 0.5)
    return made[0], made[1]
