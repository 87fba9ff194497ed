"""Nested tensors of the jagged layout, with which a batch of sequences needs no padding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from versions import since_2_5

import tclint
from tclint.core.errors import TargetError
from tclint.graph.lowering.gradients import gradient_needs
from tclint.graph.ops import Graph, Op

pytestmark = pytest.mark.skipif(
    not hasattr(torch.nested, "nested_tensor_from_jagged"), reason="an older torch"
)


class Encoder(nn.Module):
    """Attention over sequences of 4 and 10 vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 3 * 64), nn.Linear(64, 64)

    def forward(self, sequences: list[torch.Tensor]) -> torch.Tensor:
        nested = torch.nested.as_nested_tensor(list(sequences), layout=torch.jagged)
        heads = (part.unflatten(-1, [4, -1]).transpose(1, 2) for part in self.qkv(nested).chunk(3, -1))
        attended = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2)
        return self.out(attended).to_padded_tensor(0.0)


class Pooled(nn.Module):
    """One mean for each sequence, of which the offsets tell the beginnings."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(100, 16), nn.LayerNorm(16)

    def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        nested = self.norm(torch.nested.nested_tensor_from_jagged(self.words(words), offsets))
        return torch.stack([sequence.mean(0) for sequence in nested.unbind()])


class Strided(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nested.to_padded_tensor(torch.nested.nested_tensor([x, x]), 0.0)


def op_named(graph: Graph, name: str) -> Op:
    return next(op for op in graph.ops if op.name == name)


@since_2_5
def test_weights_learn_through_what_nested_tensors_detach_of_their_own() -> None:
    graph = tclint.trace(Encoder, inputs=([torch.empty(4, 64), torch.empty(10, 64)],))
    needs = [need for op, need in zip(graph.ops, gradient_needs(graph), strict=True) if op.name == "linear"]
    assert [need[1] for need in needs] == [True, True]

    class Cut(Encoder):
        def forward(self, sequences: list[torch.Tensor]) -> torch.Tensor:
            nested = torch.nested.as_nested_tensor(list(sequences), layout=torch.jagged)
            return self.out(self.qkv(nested).chunk(3, -1)[0].detach()).values()

    graph = tclint.trace(Cut, inputs=([torch.empty(4, 64), torch.empty(10, 64)],))
    needs = [need for op, need in zip(graph.ops, gradient_needs(graph), strict=True) if op.name == "linear"]
    assert [need[1] for need in needs] == [False, True]


@since_2_5
def test_layers_see_the_elements_of_all_sequences() -> None:
    graph = tclint.trace(Encoder, inputs=([torch.empty(4, 64), torch.empty(10, 64)],))
    assert [op.inputs[0].shape for op in graph.ops if op.name == "linear"] == [(14, 64), (14, 64)]
    assert op_named(graph, "scaled_dot_product_attention").inputs[0].shape == (2, 4, 7, 16)
    assert graph.outputs[0].shape == (2, 10, 64)
    assert [note.what for note in graph.assumptions] == [
        "attention over jagged sequences: equal lengths assumed"
    ]


@since_2_5
def test_sequences_that_do_not_divide_evenly_are_cut() -> None:
    graph = tclint.trace(Pooled, inputs=(torch.zeros(11, dtype=torch.int64), torch.tensor([0, 4, 11])))
    assert op_named(graph, "embedding").outputs[0].shape == (11, 16)
    assert op_named(graph, "mean").inputs[0].shape == (5, 16)
    assert graph.outputs[0].shape == (2, 16)


def test_the_older_layout_is_refused_in_one_sentence() -> None:
    with pytest.raises(
        TargetError, match=r"strided layout cannot be traced; make them with layout=torch.jagged"
    ):
        tclint.trace(Strided, torch.empty(3, 4))
