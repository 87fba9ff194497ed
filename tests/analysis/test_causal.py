"""Which masks of traced attention are causal, and what their fused form costs."""

from __future__ import annotations

from typing import Any

import pytest

import tclint
from tclint.analysis.attention import attention_blocks, causal_mask
from tclint.analysis.what_if.fusions import with_fused_attention
from tclint.graph.ops import Graph

torch = pytest.importorskip("torch")


def _graph(mask: str, how: str) -> Graph:
    """Attention between q, k and v of 640 tokens, whose scores `s` become `how`, with that mask `m`."""

    class Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            known = {"torch": torch, "t": q.shape[-2], "n": k.shape[-2], "inf": float("inf")}
            m = eval(mask, known)
            s = eval(how, known | {"m": m, "s": q @ k.transpose(-2, -1)})
            return s.softmax(-1) @ v

    return tclint.trace(Attention(), tuple(torch.empty(2, 4, 640, 16) for _ in range(3)))


@pytest.mark.parametrize(
    ("mask", "how"),
    [
        ("torch.tril(torch.ones(t, t)).bool()", "s.masked_fill(~m, -inf)"),
        ("torch.tril(torch.ones(t, t)).view(1, 1, t, t)", "s.masked_fill(m == 0, -1e9)"),
        ("torch.ones(t, t, dtype=torch.bool).triu(1)", "s.masked_fill(m, -inf)"),
        ("torch.triu(torch.ones(t, t), diagonal=1)[None, None]", "s.masked_fill(m.bool(), -inf)"),
        ("torch.triu(torch.full((t, t), -inf), diagonal=1)", "s + m"),
        ("torch.full((t, t), -inf).triu(1)", "s / 4.0 + m"),
    ],
)
def test_causal(mask: str, how: str) -> None:
    graph = _graph(mask, how)
    (block,) = attention_blocks(graph)
    assert causal_mask(graph, block)
    fused = with_fused_attention(graph, [block])
    assert fused is not None
    (call,) = [op for op in fused.ops if op.kind == "attention"]
    assert call.attributes["is_causal"] is True
    assert call.input_names == ("query", "key", "value")
    assert not any(op.name in ("tril", "triu", "ones", "full", "masked_fill") for op in fused.ops)


@pytest.mark.parametrize(
    ("mask", "how"),
    [
        ("torch.tril(torch.ones(t, t)).bool()", "s.masked_fill(m, -inf)"),  # the earlier ones
        ("torch.tril(torch.ones(t, t), -1).bool()", "s.masked_fill(~m, -inf)"),  # the token itself too
        ("torch.triu(torch.ones(t, t)).bool()", "s.masked_fill(m, -inf)"),  # the token itself too
        ("torch.tril(torch.ones(t, t)).bool()", "s.masked_fill(~m, -10.0)"),  # little less than the others
        ("torch.tril(torch.zeros(t, t))", "s.masked_fill(m == 0, -inf)"),
        ("torch.tril(torch.full((t, t), -inf))", "s + m"),
        ("torch.triu(torch.ones(t, t), 1)", "s + m"),
        ("torch.tril(torch.ones(t, t)).bool().flip(0)", "s.masked_fill(~m, -inf)"),
        ("torch.tril(torch.ones(t, t)).bool()", "(s + torch.ones(t, t)).masked_fill(~m, -inf)"),  # and a bias
        ("None", "s"),
    ],
)
def test_other_masks(mask: str, how: str) -> None:
    graph = _graph(mask, how)
    (block,) = attention_blocks(graph)
    assert causal_mask(graph, block) is None


def test_a_mask_that_is_read_again_stays() -> None:
    graph = _graph("torch.tril(torch.ones(t, t)).bool()", "s.masked_fill(~m, -inf).masked_fill(~m, -inf)")
    (block,) = attention_blocks(graph)
    assert causal_mask(graph, block) is None  # masked twice
