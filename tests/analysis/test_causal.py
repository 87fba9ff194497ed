"""Which masks of traced attention are causal, and what their fused form costs."""

from __future__ import annotations

from typing import Any

import pytest

import tclint
from tclint.analysis.attention import attention_blocks
from tclint.graph.ops import Graph
from tclint_rules.architecture.fusions import with_fused_attention

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
    assert block.causal_mask(graph)
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
    assert block.causal_mask(graph) is None


class Held(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Attention with a mask that its constructor makes, for more tokens than come."""

    def __init__(self, made: str, how: str) -> None:
        super().__init__()
        known: dict[str, Any] = {"torch": torch, "n": 1024, "inf": float("inf")}
        exec(made, known)
        self.register_buffer("held", known["m"])
        self.how = how

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        s = q @ k.transpose(-2, -1)
        known = {"torch": torch, "m": self.held, "s": s, "t": q.shape[-2], "inf": float("inf")}
        return eval(self.how, known).softmax(-1) @ v


def _held(made: str, how: str, length: int, *, is_built: bool) -> Graph:
    """Traced from a callable, which is built without memory, or from a module that has real values."""
    inputs = tuple(torch.empty(2, 4, length, 16) for _ in range(3))
    return tclint.trace(Held(made, how) if is_built else lambda: Held(made, how), inputs)


@pytest.mark.parametrize(
    ("made", "how"),
    [
        ("m = torch.tril(torch.ones(n, n)).view(1, 1, n, n)", "s.masked_fill(m[:, :, :t, :t] == 0, -inf)"),
        ("m = torch.tril(torch.ones(n, n, dtype=torch.bool))", "torch.where(m[:t, :t], s, -1e9)"),
        ("m = torch.full((n, n), -inf).triu_(1)", "s + m[:t, :t]"),
        ("m = torch.empty(n, n)\nm.fill_(-inf)\nm.triu_(1)", "s + m[:t, :t]"),
        ("m = torch.tril(torch.ones(n, n))", "s + (1.0 - m[:t, :t]) * -1e5"),
        ("m = torch.tril(torch.ones(n, n))", "s * m[:t, :t] - 1e10 * (1 - m[:t, :t])"),
        ("m = torch.arange(n)[:, None] >= torch.arange(n)", "s.masked_fill(~m[:t, :t], -inf)"),
        ("m = (torch.arange(n) > torch.arange(n)[:, None]) * -1e5", "s + m[:t, :t]"),
        ("m = torch.zeros(n, n).masked_fill(torch.ones(n, n).triu(1) == 1, -inf)", "s + m[:t, :t]"),
    ],
)
@pytest.mark.parametrize("length", [640, 128])
@pytest.mark.parametrize("is_built", [False, True])
def test_causal_where_the_constructor_makes_the_mask(
    made: str, how: str, length: int, is_built: bool
) -> None:
    graph = _held(made, how, length, is_built=is_built)
    (block,) = attention_blocks(graph)
    assert block.causal_mask(graph) is not None


@pytest.mark.parametrize(
    ("made", "how"),
    [
        ("m = torch.tril(torch.ones(n, n))\nm[:, :8] = 1", "s.masked_fill(m[:t, :t] == 0, -inf)"),
        ("m = torch.tril(torch.ones(n, n))\nm[0].fill_(1)", "s.masked_fill(m[:t, :t] == 0, -inf)"),
        ("m = torch.tril(torch.ones(n, n))", "s * m[:t, :t]"),
        (
            "import copy\nm = torch.tril(torch.ones(n, n))\nm[:, :8] = 1\nm = copy.deepcopy(m)",
            "s.masked_fill(m[:t, :t] == 0, -inf)",
        ),
        ("m = torch.ones(n, n).tril().triu(-256)", "s.masked_fill(m[:t, :t] == 0, -inf)"),
        ("m = torch.tril(torch.ones(n, n))", "s.masked_fill(m[-t:, :t] == 0, -inf)"),
        ("m = torch.tril(torch.ones(n, n))", "s.masked_fill(m[:t, :t].T == 0, -inf)"),
        ("m = torch.tril(torch.ones(n, n))", "s + torch.rand_like(m[:t, :t])"),
        (
            "d = torch.arange(n)[:, None] - torch.arange(n)\nm = (d >= 0) & (d < 256)",
            "s.masked_fill(~m[:t, :t], -inf)",
        ),
    ],
)
@pytest.mark.parametrize("is_built", [False, True])
def test_other_masks_of_the_constructor(made: str, how: str, is_built: bool) -> None:
    graph = _held(made, how, 640, is_built=is_built)
    (block,) = attention_blocks(graph)
    assert block.causal_mask(graph) is None


def test_a_mask_that_is_read_twice_is_still_causal() -> None:
    graph = _graph("torch.tril(torch.ones(t, t)).bool()", "s.masked_fill(~m, -inf).masked_fill(~m, -inf)")
    (block,) = attention_blocks(graph)
    assert block.causal_mask(graph) is not None


class Fused(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Fused attention that is told to be causal, or gets a mask that hides later tokens."""

    def __init__(self, *, is_told: bool) -> None:
        super().__init__()
        self.is_told = is_told
        self.register_buffer("held", torch.full((1024, 1024), float("-inf")).triu(1), persistent=False)

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        mask = None if self.is_told else self.held.to(q.dtype)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.is_told)


@pytest.mark.parametrize("gpu", ["a100", "h100", "v100"])
def test_fused_attention_gains_what_the_changed_model_does(gpu: str) -> None:
    inputs = tuple(torch.empty(2, 16, 1024, 64, dtype=torch.float16) for _ in range(3))
    masked, told = (tclint.trace(Fused(is_told=is_told), inputs) for is_told in (False, True))
    options = {"gpu": gpu, "precision": "pure-fp16", "mode": "infer", "select": ["ARC024"]}
    (finding,) = tclint.check(masked, **options).findings
    times_us = [
        tclint.estimate(graph, gpu, precision="pure-fp16", mode="infer").step_time_us
        for graph in (masked, told)
    ]
    (effect,) = finding.effect.per_gpu.values()
    assert effect.gain_us == pytest.approx(times_us[0] - times_us[1])
    assert not tclint.check(told, **options).findings


class Dropped(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Attention with a dropout of its weights, written out or fused."""

    def __init__(self, *, is_fused: bool, dropout: float) -> None:
        super().__init__()
        self.is_fused, self.dropout = is_fused, torch.nn.Dropout(dropout)

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        if self.is_fused:
            p = self.dropout.p if self.training else 0.0
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p)
        return self.dropout((q @ k.transpose(-2, -1) / 8.0).softmax(-1)) @ v


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_fused_attention_drops_what_the_written_one_does(dropout: float, mode: str) -> None:
    inputs = tuple(torch.empty(2, 16, 1024, 64, requires_grad=True) for _ in range(3))
    written, fused = (
        tclint.trace(Dropped(is_fused=is_fused, dropout=dropout), inputs, mode=mode)
        for is_fused in (False, True)
    )
    (block,) = attention_blocks(written)
    predicted = with_fused_attention(written, [block])
    assert predicted is not None
    times_us = [
        tclint.estimate(graph, "h100", precision="bf16", mode=mode).step_time_us
        for graph in (predicted, fused)
    ]
    assert times_us[0] == pytest.approx(times_us[1])
