"""Which constants keep their values, and what the others are said to be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tclint


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


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("positions", "guesses"), [(196, 0), (512, 0), (513, 1)])
def test_a_constructors_table_of_pairs_keeps_its_values(positions: int, guesses: int) -> None:
    built: list[_PairTable] = []
    graph = tclint.trace(lambda: built.append(_PairTable(positions)) or built[0])
    here = [item for item in graph.assumptions if item.site and "test_constants" in item.site.path]
    assert len(here) == guesses
    assert (built[0].largest == positions - 1) == (not guesses)


@pytest.mark.usefixtures("in_this_process")
def test_a_mask_takes_a_byte_an_element() -> None:
    built: list[Tensor] = []

    class Masked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            at = torch.arange(512)
            built.append(at[:, None] >= at[None, :])

    tclint.trace(Masked)
    assert int(built[0].sum()) == 512 * 513 // 2


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


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_product_with_a_sparse_buffer_is_priced_as_a_dense_one_and_said(layout: str) -> None:
    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            edges = torch.tensor([[index % 50 for index in range(200)], [index % 49 for index in range(200)]])
            graph = torch.sparse_coo_tensor(edges, torch.ones(200), (50, 50)).coalesce()
            self.register_buffer("graph", graph if layout == "coo" else graph.to_sparse_csr())
            self.linear = nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mixed: torch.Tensor = self.graph @ self.linear(x)
            return mixed

    graph = tclint.trace(Convolution, torch.empty(50, 16))
    said = [assumption.what for assumption in graph.assumptions]
    assert "a product with a sparse matrix is priced as that with a dense one" in said
    assert graph.outputs[0].shape == (50, 8)
