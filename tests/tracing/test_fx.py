"""tclint.to_fx: the torch.fx.Graph of a trace computes what the model computes."""

from __future__ import annotations

import dataclasses
import operator
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import tclint
from tclint.graph.ops import Graph


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = functional.relu(self.norm(self.first(images)), inplace=True)
        pooled = functional.max_pool2d(maps, 2).mean((2, 3))
        return self.head(pooled).to(torch.float64)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.project = nn.Linear(16, 48)
        self.recurrent = nn.GRU(16, 6, batch_first=True, bidirectional=True)

    def forward(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        words = self.words(batch["words"])
        query, key, value = self.project(words).chunk(3, dim=-1)
        hidden = (batch["words"] == 0)[:, None, :]
        scores = torch.einsum("bqd,bkd->bqk", query, key).masked_fill(hidden, -1e4)
        made = torch.cat([scores.softmax(-1) @ value, words], dim=-1)[..., 16:]
        made[:, 0] += made[:, 1]
        states, last = self.recurrent(made, batch["state"])
        best, where = states.max(dim=-1)
        return best + last.sum(), where


class TwoResults(nn.Module):
    def forward(self, scores: torch.Tensor) -> list[torch.Tensor]:
        values, indices = scores.topk(2, dim=1)
        return [values, indices, scores[:, indices[0]], *torch.split(scores.t(), [1, 3])]


class OddNames(nn.Module):
    def forward(self, input: list[torch.Tensor], input_0: torch.Tensor) -> torch.Tensor:
        return input[0] - 2 * input_0


_CASES: dict[str, tuple[type[nn.Module], tuple[Any, ...]]] = {
    "convolutional": (Convolutional, (torch.rand(2, 3, 16, 16),)),
    "attending": (Attending, ({"words": torch.arange(10).view(2, 5), "state": torch.rand(2, 2, 6)},)),
    "odd_names": (OddNames, ([torch.rand(3)], torch.rand(3))),
    "two_results": (TwoResults, (torch.rand(2, 4),)),
}


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.parametrize("through_json", [False, True])
def test_computes_the_same(name: str, through_json: bool) -> None:
    build, inputs = _CASES[name]
    graph = tclint.trace(lambda: build().eval(), inputs)
    if through_json:
        graph = Graph.from_json(graph.to_json())
    torch.manual_seed(0)
    model = build().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fx would rather have inserted the attributes itself
        module = torch.fx.GraphModule(model, tclint.to_fx(graph))
    flat = torch.utils._pytree.tree_leaves(inputs)
    with torch.no_grad():
        found, expected = module(*flat), model(*inputs)
    expected = expected if isinstance(expected, (list, tuple)) else (expected,)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_nodes_tell_where() -> None:
    build, inputs = _CASES["convolutional"]
    graph = tclint.trace(build, inputs)
    calls = [node for node in tclint.to_fx(graph).nodes if node.op == "call_function"]
    convolution = next(node for node in calls if node.target is torch.ops.aten.conv2d.default)
    op = convolution.meta["tclint"]
    assert op.module_path == "first"
    assert Path(op.call_site.path).name == Path(__file__).name
    assert f'test_fx.py", line {op.call_site.line}, in forward' in convolution.meta["stack_trace"]
    assert [node.target for node in convolution.args[1:3]] == ["first.weight", "first.bias"]


def test_unknown_constants_are_said_to_be_unknown() -> None:
    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tensor([1.0, 2.0])

    fx = tclint.to_fx(tclint.trace(Shifted, (torch.rand(3, 2),)))
    constants = [node for node in fx.nodes if node.op == "get_attr"]
    assert [node.target for node in constants] == ["_constant_1"]
    assert constants[0].meta["spec"].shape == (2,)


def test_what_is_made_of_a_buffer_is_not_the_buffer() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([1.0, 0.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.mask + x * (1 - self.mask)

    graph = Graph.from_json(tclint.trace(Masked, (torch.rand(3, 2),)).to_json())
    assert [node.target for node in tclint.to_fx(graph).nodes if node.op == "get_attr"] == [
        "mask",
        "_constant_1",
    ]
    assert [spec.parameter for op in graph.ops for spec in op.inputs if spec.producer is None] == [
        None,
        "mask",
        None,
        "mask",
    ]


def test_operator_of_a_missing_library() -> None:
    graph = tclint.trace(TwoResults, (torch.rand(2, 4),))
    text = graph.to_json().replace('"aten::topk"', '"missing::topk"')
    with pytest.raises(LookupError, match="'missing::topk' here: import the library"):
        tclint.to_fx(Graph.from_json(text))


def test_graph_without_full_names() -> None:
    graph = tclint.trace(TwoResults, (torch.rand(2, 4),))
    nameless = dataclasses.replace(graph, ops=tuple(dataclasses.replace(op, operator="") for op in graph.ops))
    with pytest.raises(LookupError, match="which 'topk' of torch it holds: trace the model again"):
        tclint.to_fx(nameless)


def test_a_result_is_picked_once() -> None:
    class Reused(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = x.chunk(2)
            return first * second + first

    nodes = tclint.to_fx(tclint.trace(Reused, (torch.rand(4, 2),))).nodes
    assert sum(node.target is operator.getitem for node in nodes) == 2


def test_the_method_is_deprecated() -> None:
    graph = tclint.trace(TwoResults, (torch.rand(2, 4),))
    with pytest.warns(DeprecationWarning, match=r"call tclint\.to_fx"):
        assert len(graph.to_fx().nodes) == len(tclint.to_fx(graph).nodes)
