"""FlexAttention: what its masks leave out is not computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tclint
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.graph.ops import Graph

flex = pytest.importorskip("torch.nn.attention.flex_attention")

LENGTH = 4096
Mask = Callable[[Any, Any, Any, Any], Any]


class Attention(nn.Module):
    def __init__(self, mask: Mask | None) -> None:
        super().__init__()
        self.qkv = nn.Linear(512, 3 * 512)
        self.mask = flex.create_block_mask(mask, None, None, LENGTH, LENGTH, device="cpu") if mask else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 8, 64)).permute(2, 0, 3, 1, 4)
        attended: torch.Tensor = flex.flex_attention(query, key, value, block_mask=self.mask)
        return attended


def _causal(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
    return query >= key


def _window(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
    return (query >= key) & (query - key < 256)


def _graph(mask: Mask | None) -> Graph:
    return tclint.trace(lambda: Attention(mask), torch.empty(2, LENGTH, 512))


def _share(graph: Graph) -> Any:
    (op,) = (op for op in graph.ops if op.kind == "attention")
    return op.attributes.get("seen_share")


@pytest.mark.parametrize(
    ("mask", "share"),
    [(None, 1.0), (_causal, (32 + 1) / 64), (_window, (1 + 2 + 30 * 3) / 32**2)],
)
def test_a_share_of_the_blocks_is_seen(mask: Mask | None, share: float) -> None:
    assert _share(_graph(mask)) == pytest.approx(share)


def test_a_mask_that_depends_on_data_is_taken_to_leave_everything_and_said() -> None:
    class Documents(Attention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            document = x[0, :, 0].cumsum(0) > 3

            def same(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
                return document[query] == document[key]

            self.mask = flex.create_block_mask(same, None, None, LENGTH, LENGTH, device=x.device)
            return super().forward(x)

    graph = tclint.trace(lambda: Documents(None), torch.empty(2, LENGTH, 512))
    assert _share(graph) is None
    assert "a block mask that depends on data leaves nothing out" in [a.what for a in graph.assumptions]


def test_the_price_is_that_of_what_is_seen() -> None:
    def time_us(mask: Mask | None) -> float:
        graph = _graph(mask)
        found = estimate(graph, Scenario("a100", "fp16", "train"))
        return sum(row.time_us for row in found.rows if graph.ops[row.op_index].kind == "attention")

    whole, triangle, window = map(time_us, (None, _causal, _window))
    assert 0.45 < triangle / whole < 0.6
    assert 0.05 < window / whole < 0.2
