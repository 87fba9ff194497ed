"""tclint.to_fx: the torch.fx.Graph of a trace computes what the model computes."""

from __future__ import annotations

import copy
import operator
import pickle
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
def test_computes_the_same(name: str) -> None:
    build, inputs = _CASES[name]
    graph = tclint.trace(lambda: build().eval(), inputs)
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


def test_nodes_have_the_metadata_of_the_field() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Convolutional()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.inner(images) + 1

    graph = tclint.trace(Outer, torch.rand(2, 3, 16, 16))
    calls = [node for node in tclint.to_fx(graph).nodes if node.op == "call_function"]
    convolution = next(node for node in calls if node.target is torch.ops.aten.conv2d.default)
    value = convolution.meta["val"]
    assert (value.device.type, tuple(value.shape)) == ("meta", (2, 8, 8, 8))
    modules = list(convolution.meta["nn_module_stack"].values())
    assert [path for path, _ in modules] == ["", "inner", "inner.first"]
    assert modules[-1][1] == "torch.nn.modules.conv.Conv2d"
    op = next(op for op in graph.ops if op.name == "conv2d")
    assert f'test_fx.py", line {op.call_site.line}, in forward' in convolution.meta["stack_trace"]
    assert [node.target for node in convolution.args[1:3]] == ["inner.first.weight", "inner.first.bias"]
    constructed = convolution.meta["tclint"].construct.site
    assert (Path(constructed.path).name, constructed.function) == (Path(__file__).name, "__init__")


def test_constants_are_not_kept_alive() -> None:
    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tensor([1.0, 2.0])

    fx = tclint.to_fx(tclint.trace(Shifted, (torch.rand(3, 2),)))
    constants = [node for node in fx.nodes if node.op == "get_attr"]
    assert [node.target for node in constants] == ["_constant_1"]
    assert constants[0].meta["val"].is_meta
    assert constants[0].meta["val"].shape == (2,)


def test_what_is_made_of_a_buffer_is_not_the_buffer() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([1.0, 0.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.mask + x * (1 - self.mask)

    graph = tclint.trace(Masked, (torch.rand(3, 2),))
    attributes = [node.target for node in tclint.to_fx(graph).nodes if node.op == "get_attr"]
    assert attributes == ["mask", "_constant_1"]
    assert [spec.parameter for op in graph.ops for spec in op.inputs if spec.producer is None] == [
        None,
        "mask",
        None,
        "mask",
    ]


def test_parts_of_a_composite_operator_stand_for_it() -> None:
    class Summing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("bi,bj->bij", x, x)

    graph = tclint.trace(Summing, (torch.rand(3, 2),))
    names = [op.name for op in graph.ops]
    assert names[0] == "einsum"
    assert {op.parent for op in graph.ops[1:]} == {0}
    targets = [node.target for node in tclint.to_fx(graph).nodes if node.op == "call_function"]
    assert len(targets) == len(names) - 1
    assert torch.ops.aten.einsum.default not in targets


def test_a_composite_that_failed_leaves_nothing_behind() -> None:
    class Careful(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return torch.linalg.multi_dot([x, x.t(), x.t()])
            except RuntimeError:
                return x * 2

    graph = tclint.trace(Careful, (torch.rand(3, 2),))
    assert [op.name for op in graph.ops] == ["t", "t", "mul"]
    targets = [node.target for node in tclint.to_fx(graph).nodes if node.op == "call_function"]
    assert torch.ops.aten.linalg_multi_dot.default not in targets


def test_a_program_of_torch_export_is_handed_out_as_it_is() -> None:
    program = torch.export.export(Convolutional().eval(), (torch.rand(2, 3, 16, 16),))
    assert tclint.to_fx(tclint.trace(program)) is program.graph


def test_nodes_stay_in_the_process_of_the_trace() -> None:
    graph = tclint.trace(TwoResults, (torch.rand(2, 4),))
    for other in (Graph.from_json(graph.to_json()), pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert other == graph
        with pytest.raises(LookupError, match="stay in the process that asked for the trace"):
            tclint.to_fx(other)


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
