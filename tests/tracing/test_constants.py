"""Which constants keep their values, and what the others are said to be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tclint
from tclint.tracing.values.equal_constants import times_one


class _PairTable(nn.Module):
    """Differences of all pairs of positions, as windowed attention indexes its biases with."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        at = torch.arange(positions)
        self.register_buffer("pairs", at[:, None] - at[None, :])
        self.largest = int(self.pairs.max())
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize(("positions", "guesses"), [(196, 0), (512, 0), (513, 1)])
def test_a_constructors_table_of_pairs_keeps_its_values(positions: int, guesses: int) -> None:
    built: list[_PairTable] = []
    graph = tclint.trace(lambda: built.append(_PairTable(positions)) or built[0])
    here = [item for item in graph.assumptions if item.site and "test_constants" in item.site.path]
    assert len(here) == guesses
    assert (built[0].largest == positions - 1) == (not guesses)


def test_a_mask_takes_a_byte_an_element() -> None:
    built: list[Tensor] = []

    class Masked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            at = torch.arange(512)
            built.append(at[:, None] >= at[None, :])

    tclint.trace(Masked)
    assert int(built[0].sum()) == 512 * 513 // 2


def test_a_table_times_one_is_as_a_copy() -> None:
    base = torch.arange(8192.0)
    strided = torch.arange(16384.0)[::2]
    part = base[4096:]
    taken = torch.arange(8192.0)
    seen = taken.numpy()
    for tensor in (base, strided, part, taken, base.view(2, 4096).t()):
        made = times_one("aten::mul.Tensor", (tensor, 1.0))
        assert made is None or (made.stride(), made.storage_offset()) == ((tensor * 1.0).stride(), 0)
    assert times_one("aten::mul.Tensor", (part, 1.0)) is None
    product = times_one("aten::mul.Tensor", (taken, 1.0))
    product = taken * 1.0 if product is None else product
    seen[:] = -1
    assert float(product[3]) == 3.0
    for number in (2, True, 1j, torch.ones(())):
        assert times_one("aten::mul.Tensor", (base, number)) is None
    assert times_one("mylib::mul.Tensor", (base, 1.0)) is None


def test_sparse_constants_times_one() -> None:
    class Sparse(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.scaled = torch.eye(64).to_sparse_csr() * 1.0

    tclint.trace(Sparse)


def test_a_table_times_one_is_a_tensor_of_its_own() -> None:
    seen: list[Tensor] = []

    class Scaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            table = torch.arange(10_000).float()
            scaled = table * 1.0
            scaled += 1
            seen.extend((table, scaled))
            return super().forward(x)

    tclint.trace(lambda: Scaled(4, 4))
    table, scaled = seen
    assert torch.equal(table + 1, scaled)
    assert float(table[0]) == 0.0


def test_like_a_strided_tensor() -> None:
    class Like(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x.to(memory_format=torch.channels_last))
            return y + torch.zeros_like(y) + torch.ones_like(y.transpose(1, 2)).transpose(1, 2)

    graph = tclint.trace(lambda: Like(3, 8, 3), inputs=(torch.zeros(2, 3, 8, 8),))
    conv, zeros, ones = (
        next(op for op in graph.ops if op.name == name) for name in ("conv2d", "zeros_like", "ones_like")
    )
    assert zeros.outputs[0].strides == conv.outputs[0].strides
    assert ones.outputs[0].shape == (2, 6, 8, 6)
    real = Like(3, 8, 3)(torch.zeros(2, 3, 8, 8))
    assert graph.outputs[0].strides == real.stride()


@pytest.mark.parametrize(("rows", "recorded"), [(256, 0), (257, 2)])
def test_a_forwards_table_of_many_numbers_is_work(rows: int, recorded: int) -> None:
    class Embedded(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            table = torch.arange(rows).float()[:, None] * torch.arange(256).float()
            return super().forward(x) + table.sin()[0, 0]

    graph = tclint.trace(lambda: Embedded(4, 4))
    assert sum(1 for op in graph.ops if op.name in ("mul", "sin")) == recorded


def test_a_filled_parameter_is_filled_anew() -> None:
    sums: list[float] = []

    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            weights = [nn.Parameter(torch.zeros(300)) for _ in range(4)]
            with torch.no_grad():
                weights[0].fill_(0.5)
                weights[1].fill_(1).zero_()
                seen = weights[2][:7]
                weights[2].fill_(3)
                weights[0][5] = 7
                sums.extend(float(weight.sum()) for weight in (*weights, seen))
            assert all(weight.requires_grad for weight in weights)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    tclint.trace(Filled)
    assert sums == [299 * 0.5 + 7, 0, 900, 0, 21]
