"""`--phase`: the forward of a prompt, or of one token against a key-value cache."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tclint
from tclint.core.errors import UsageError
from tclint.engine.report import Entry
from tclint.graph.lowering.step import forward_flops
from tclint.tracing import trace_targets


class Block(nn.Module):
    """Width 32, 4 heads, 100 words; the head on the last token only."""

    def __init__(self, **stated: Any) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(100, 32), nn.Linear(32, 96), nn.Linear(32, 100)
        for name, value in stated.items():
            setattr(self, name, value)

    def project(self, tokens: Tensor) -> tuple[Tensor, ...]:
        assert not self.training
        return self.qkv(self.embed(tokens)).unflatten(-1, (3, 4, 8)).transpose(1, 3).unbind(2)

    def answer(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        mixed = functional.scaled_dot_product_attention(query, keys, values)
        return self.head(mixed.transpose(1, 2).flatten(2)[:, -1:])


class Returned(Block):
    """Takes and returns the cache, as most do."""

    def forward(self, idx: Tensor, past: Any = None, use_cache: bool = False) -> Any:
        query, keys, values = self.project(idx)
        if past is not None:
            keys, values = torch.cat([past[0][0], keys], 2), torch.cat([past[0][1], values], 2)
        logits = self.answer(query, keys, values)
        return (logits, [(keys, values)]) if use_cache else logits


class Kept(Block):
    """Keeps the cache in tensors of its own, as Llama does."""

    def __init__(self, **stated: Any) -> None:
        super().__init__(**stated)
        self.keys, self.values = torch.zeros(8, 4, 64, 8), torch.zeros(8, 4, 64, 8)

    def forward(self, tokens: Tensor, start_pos: int) -> Tensor:
        batch, length = tokens.shape
        query, keys, values = self.project(tokens)
        self.keys[:batch, :, start_pos : start_pos + length] = keys
        self.values[:batch, :, start_pos : start_pos + length] = values
        end = start_pos + length
        return self.answer(query, self.keys[:batch, :, :end], self.values[:batch, :, :end])


class SetUp(Block):
    """Makes the cache on demand, and takes positions as a tensor, as gpt-fast does."""

    def setup_caches(self, max_batch_size: int, max_seq_length: int) -> None:
        shape = (max_batch_size, 4, max_seq_length, 8)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, idx: Tensor, input_pos: Tensor) -> Tensor:
        query, keys, values = self.project(idx)
        self.keys[:, :, input_pos] = keys
        self.values[:, :, input_pos] = values
        return self.answer(query, self.keys, self.values)


class Plain(Block):
    def forward(self, idx: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.answer(*self.project(idx))


class Silent(Block):
    def forward(self, idx: Tensor, kv_cache: Any = None) -> Tensor:
        return self.answer(*self.project(idx))


def entry_of(model: nn.Module, **settings: Any) -> Entry:
    report = tclint.check(model, tclint.Settings(**settings))
    assert [error.message for error in report.errors] == []
    (entry,) = report.entries
    assert entry.mode == "infer"
    return entry


def attention_of(entry: Entry) -> list[tuple[int, ...]]:
    assert entry.graph is not None
    (attention,) = (op for op in entry.graph.ops if op.kind == "attention")
    return [spec.shape for spec in attention.inputs[:3]]


@pytest.mark.parametrize("model", [Returned, Kept, SetUp, Plain])
def test_a_prompt(model: type[Block]) -> None:
    entry = entry_of(model(), phase="prefill", prompt=40)
    assert attention_of(entry) == [(8, 4, 40, 8)] * 3
    assert "a prompt of 40 tokens: " in entry.assumptions[0].what


@pytest.mark.parametrize("model", [Returned, Kept, SetUp])
def test_one_token_against_a_cache(model: type[Block]) -> None:
    made = model()
    names = set(vars(made)) | set(made._buffers)
    entry = entry_of(made, phase="decode", kv_length=40, batch=2)
    assert attention_of(entry) == [(2, 4, 1, 8), (2, 4, 41, 8), (2, 4, 41, 8)]
    assert entry.graph is not None
    assert forward_flops(entry.graph) == 2 * 2 * (32 * 96 + 32 * 100 + 2 * 4 * 41 * 8)
    assert "one new token against a key-value cache of 40 tokens" in entry.assumptions[0].what
    assert set(vars(made)) | set(made._buffers) == names


def test_the_lengths_that_are_not_given() -> None:
    assert attention_of(entry_of(Returned(), phase="prefill"))[0] == (8, 4, 2048, 8)
    assert attention_of(entry_of(Returned(), phase="decode"))[1] == (8, 4, 2049, 8)


def test_a_cache_that_fills_the_context_holds_the_new_token_too() -> None:
    entry = entry_of(Kept(max_seq_len=64), phase="decode", kv_length=64)
    assert attention_of(entry)[1] == (8, 4, 64, 8)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_cache_is_as_autocast_left_it(precision: Any) -> None:
    """Autocast computed it in steps before; a cache of float32 would be converted in every step."""
    entry = entry_of(Returned(), phase="decode", precision=precision)
    from tclint.cost.transforms.casts import apply_precision

    assert entry.graph is not None
    graph = apply_precision(entry.graph, precision, "infer")
    dtype = {"fp16": "float16", "bf16": "bfloat16"}[precision]
    assert {spec.dtype for spec in graph.inputs} == {"int64", dtype}
    (attention,) = (op for op in graph.ops if op.kind == "attention")
    assert attention.casts == ()


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (
            Plain(),
            {"phase": "decode"},
            r"takes no key-value cache \(it takes idx, targets\), so it has no dec",
        ),
        (Silent(), {"phase": "decode"}, "takes kv_cache, but returns no cache for it: name a callable that"),
        (nn.Conv2d(3, 8, 3), {"phase": "prefill"}, "Conv2d takes no tokens that tclint knows of"),
        (
            Plain(block_size=16),
            {"phase": "prefill", "prompt": 17},
            "Plain states a context of 16 tokens, and --prompt asks for 17: give at most 16",
        ),
    ],
)
def test_what_has_no_such_phase_is_told_why(model: nn.Module, settings: Any, message: str) -> None:
    (error,) = tclint.check(model, tclint.Settings(**settings)).errors
    assert re.search(message, error.message), error.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt": 5}, "--prompt goes with --phase prefill"),
        ({"phase": "prefill", "kv_length": 5}, "--kv-length goes with --phase decode"),
        ({"phase": "decode", "mode": "train", "explicit": frozenset({"mode"})}, "give --mode infer"),
        ({"phase": "decode", "inputs": ("int64[8,128]",)}, "leave out --input and --input-set"),
    ],
)
def test_settings_that_contradict_each_other(settings: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tclint.check(Plain(), tclint.Settings(**settings))


@pytest.mark.libraries
def test_models_of_transformers() -> None:
    pytest.importorskip("transformers")
    sizes = ("num_hidden_layers=1", "hidden_size=64", "num_attention_heads=4", "intermediate_size=96")
    settings = tclint.Settings(
        phase="decode",
        kv_length=100,
        batch=2,
        arguments=(*sizes, "num_key_value_heads=2", "vocab_size=100"),
    ).in_phase()
    (result,) = trace_targets(["hf:llama"], settings)
    assert result.graph is not None, result.error
    name = result.graph.metadata["cache"]  # versions call it differently
    cached = [spec.shape for spec in result.graph.inputs if (spec.input_name or "").startswith(f"{name}.")]
    assert cached == [(2, 2, 100, 16)] * 2
    head = next(op for op in result.graph.ops if op.module_path == "lm_head" and op.kind == "linear")
    assert head.outputs[0].shape == (2, 1, 100)
