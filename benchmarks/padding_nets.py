"""Small nets put together at random, each at two sizes, some of which read their sizes in Python."""

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


# ------------------------------------------------------------------------------ sizes that Python reads


Number = tuple[Any, ...]
"""A number made of a width K: ('K',), ('number', 0.5), or an operator and what it is applied to."""


def number_of(made: Number, width: int) -> float:
    """Its value; where it has none, 0.5."""
    try:
        return _value(made, width)
    except (ArithmeticError, ValueError):
        return 0.5


def _value(made: Number, width: int) -> Any:
    kind, *parts = made
    if kind == "K":
        return width
    if kind == "number":
        return parts[0]
    values = [_value(part, width) for part in parts]
    found = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
        "//": lambda a, b: a // b,
        "root": math.sqrt,
        "power": lambda a: a**-0.5,
        "log": math.log,
    }[kind](*values)
    # Nobody scales by 1e9, and nothing would be left of the rest of the net.
    return max(-1e3, min(1e3, found))


def _halves(x: Tensor) -> tuple[Tensor, Tensor, int]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:], half


def _swapped(x: Tensor) -> Tensor:
    left, right, _ = _halves(x)
    return torch.cat((right, left), -1)


def _mirrored(x: Tensor) -> Tensor:
    left, right, half = _halves(x)
    return torch.cat((left * 2, right - right.mean(1, keepdim=True)), -1) if half else x


def _folded(x: Tensor) -> Tensor:
    left, right, half = _halves(x)
    return x * torch.sigmoid((left * right[..., :half]).sum(-1, keepdim=True))


def _gated(index: Callable[[int], int]) -> Callable[[Tensor], Tensor]:
    def gate(x: Tensor) -> Tensor:
        at = index(x.shape[-1])
        return x * torch.sigmoid(x[..., at : at + 1])

    return gate


def _in_rows(x: Tensor, count: int) -> Tensor:
    """[batch, length, count, width / count], where it can be."""
    batch, length, width = x.shape
    return x.view(batch, length, count, width // count) if width % count == 0 else x.unsqueeze(2)


def _in_columns(x: Tensor, size: int) -> Tensor:
    batch, length, width = x.shape
    return x.view(batch, length, width // size, size) if width % size == 0 else x.unsqueeze(3)


def _centred(rows: Tensor) -> Tensor:
    return rows - rows.mean(-1, keepdim=True)


def _largest_divisor(width: int) -> int:
    return next(count for count in (4, 3, 2, 1) if width % count == 0)


def _by_parity(x: Tensor) -> Tensor:
    return x * 1.5 if x.shape[-1] % 2 else x.tanh()


def _steps(x: Tensor) -> Tensor:
    for _ in range(x.shape[-1] // 3):
        x = torch.relu(x) + 0.1 * x
    return x


def _table(x: Tensor) -> Tensor:
    width = x.shape[-1]
    return x * torch.tensor([1 / (1 + place) for place in range(width)]).to(x)


READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "by half": lambda x: x * (x.shape[-1] // 2),
    "halves swapped": _swapped,
    "halves apart": _mirrored,
    "halves multiplied": _folded,
    "mean by count": lambda x: x - x.sum(-1, keepdim=True) / x.shape[-1],
    "variance by count": lambda x: x / (1 + (x * x).sum(-1, keepdim=True) / (x.shape[-1] - 1 or 1)),
    "mean by all": lambda x: x - x.sum((1, 2), keepdim=True) / (x.numel() // x.shape[0]),
    "norm by count": lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) / x.size(-1) + 1e-3),
    "mean over the length by count": lambda x: x - x.sum(1, keepdim=True) / x.shape[1],
    "gated by the first": _gated(lambda _: 0),
    "gated by the middle": _gated(lambda width: width // 2),
    "gated by a third": _gated(lambda width: width // 3),
    "gated by the second": _gated(lambda width: min(1, width - 1)),
    "gated by the last": _gated(lambda width: width - 1),
    "from the end": lambda x: x + x[..., -2:].sum(-1, keepdim=True),
    "but the end": lambda x: x + x[..., :-1].sum(-1, keepdim=True),
    "but the first": lambda x: x + x[..., 1:].sum(-1, keepdim=True),
    "the last as a number": lambda x: x * x[..., x.shape[-1] - 1].unsqueeze(-1),
    "rows of two": lambda x: _in_columns(x, 2).relu().flatten(2),
    "rows that are summed": lambda x: x + _in_columns(x, 2).sum((2, 3)).unsqueeze(-1),
    "two rows": lambda x: _in_rows(x, 2).softmax(2).flatten(2),
    "rows by division": lambda x: (_in_rows(x, _largest_divisor(x.shape[-1])) * 0.5).flatten(2),
    "rows turned": lambda x: _in_rows(x, 2).transpose(2, 3).flatten(2),
    "means of rows": lambda x: _centred(_in_rows(x, 2)).flatten(2),
    "other for odd widths": _by_parity,
    "a step for every three": _steps,
    "a table of Python's": _table,
    "places by the width": lambda x: x * torch.linspace(0, 1, x.shape[-1], dtype=x.dtype),
    "rolled by half": lambda x: x.roll(x.shape[-1] // 2, -1),
    "the larger half": lambda x: x * x.topk(max(1, x.shape[-1] // 2), -1).values.sum(-1, keepdim=True),
    "bounded by the width": lambda x: x.clamp(max=x.shape[-1] / 4),
    "made even": lambda x: F.pad(x, (0, x.shape[-1] % 2))[..., : x.shape[-1]] * 0.7,
    "by the square of the width": lambda x: x * (x.shape[-1] ** 2 / 50),
    "shifted by the width": lambda x: x + x.shape[-1] / 10,
    "to the power of the width": lambda x: (x.abs() + 0.1) ** (x.shape[-1] / 8),
    "filled with the width": lambda x: x + torch.full_like(x[..., :1], x.shape[-1] / 10),
}
FUNCTIONS.update(READERS)


class Scaled(nn.Module):
    """Multiplies by a number that is made of the width.

    Args:
        width: as built.
        made: of what.
        kind: where the number goes in.
    """

    def __init__(self, width: int, made: Number, kind: str) -> None:
        super().__init__()
        self.number, self.kind = number_of(made, width), kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "times":
            return x * self.number
        if self.kind == "plus":
            return x + self.number
        if self.kind == "over":
            return x / (self.number or 0.5)
        if self.kind == "alpha":
            return torch.add(x, x.tanh(), alpha=self.number)
        return torch.baddbmm(x, x, torch.eye(x.shape[-1]).to(x).expand(len(x), -1, -1), alpha=self.number)


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
    elif kind == "scaled":
        inner = build(given[0])
        made = nn.Sequential(
            nn.Linear(size, inner), Scaled(inner, given[1], given[2]), nn.Linear(inner, size)
        )
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
