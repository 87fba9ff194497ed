"""A run leaves the weights of the model, and what it is told of them, as they were."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn
from versions import since_2_5

import tclint
from tclint.graph.ops import Graph

pytestmark = pytest.mark.usefixtures("in_this_process")


class Counting(nn.Module):
    """Does more from the second call on, unless the counter is set back; keeps what it saw last."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", None)
        self.register_buffer("seen", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        for _ in range(int(self.calls)):
            x = self.fc(x)
        self.seen.copy_(x)
        self.seen = self.seen * 2
        return x


def _traced_twice(make: Any) -> tuple[Graph, Graph, Any]:
    return _traced_twice_on(make, torch.empty(2, 4))


def _traced_twice_on(make: Any, x: torch.Tensor) -> tuple[Graph, Graph, Any]:
    built: list[nn.Module] = []

    def build() -> tuple[nn.Module, torch.Tensor]:
        if not built:
            built.append(make())
        return built[0], x

    return tclint.trace(build), tclint.trace(build), built[0]


def _names(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops]


def test_a_built_model_is_the_same_for_each_run() -> None:
    first, second, model = _traced_twice(Counting)
    assert _names(first).count("linear") == 1
    assert _names(second) == _names(first)
    assert second.ops == first.ops
    assert int(model.calls) == 0
    assert not any("tclint" in key for tensor in model.parameters() for key in vars(tensor))


def test_the_users_own_model_keeps_its_values() -> None:
    model = Counting()
    before = {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    for _ in range(2):
        graph = tclint.trace(lambda: (model, torch.empty(2, 4)))
        assert _names(graph).count("linear") == 1
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert tensor is before[name][0]
        assert torch.equal(tensor, before[name][1])


def test_views_of_a_buffer_that_are_written_to_are_set_back() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.register_buffer("steps", torch.arange(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            last = self.steps[3:]
            last += 1
            return self.fc(x)[:, : int(self.steps.max()) - 1]

    first, second, model = _traced_twice(Model)
    assert [graph.outputs[0].shape for graph in (first, second)] == [(2, 3), (2, 3)]
    assert model.steps.tolist() == [0, 1, 2, 3]


def test_weights_go_by_their_first_name_in_every_operator() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(11, 4)
            self.head = nn.Linear(4, 11, bias=False)
            self.head.weight = self.words.weight
            self.scale = nn.Parameter(torch.ones(11))

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.head(self.words(words)) * self.scale

    graph = tclint.trace(lambda: (Tied(), torch.zeros(2, 3, dtype=torch.int64)))
    used = {op.name: [spec.parameter for spec in op.inputs] for op in graph.ops}
    assert used["embedding"] == ["words.weight", None]
    assert used["linear"] == [None, "words.weight"]
    assert used["mul"] == [None, "scale"]
    assert {p.name: p.aliases for p in graph.parameters} == {"words.weight": ("head.weight",), "scale": ()}


def test_a_layer_made_elsewhere_is_swapped_for_the_run_alone() -> None:
    outside = nn.Linear(4, 4)
    weight = outside.weight

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(4, 4)
            self.outside = outside

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outside(self.inside(x))

    graph = tclint.trace(lambda: (Model(), torch.empty(2, 4)))
    assert [op.inputs[1].parameter for op in graph.ops] == ["inside.weight", "outside.weight"]
    assert outside.weight is weight
    assert not weight.is_meta


def test_a_small_buffer_that_is_written_to_remembers_who_wrote() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("out", torch.zeros(4, 8))
            self.register_buffer("keys", torch.zeros(6, 8))
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            torch.matmul(x, self.weight, out=self.out)
            for step in range(6):
                self.keys[step] = x[0]
                x = x + self.keys.mean(0)
            return self.out * 2, x

    graph = tclint.trace(lambda: (Model(), torch.empty(4, 8)))
    doubled, last = (graph.ops[spec.producer or 0] for spec in graph.outputs)
    assert doubled.name == "mul"
    assert graph.ops[doubled.inputs[0].producer or 0].name in ("copy", "matmul", "mm")
    assert last.name == "add"
    # Each step tells of its own write, not of all writes before it.
    assert _names(graph).count("as_strided_scatter") <= 6


def test_what_a_forward_makes_of_a_weights_shape_is_undone() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("positions", torch.empty(70, 1000))
            self.weight = nn.Parameter(torch.empty(1000, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.requires_grad_(False)
            return x @ self.weight + (x @ self.positions.t_()).sum()

    first, second, model = _traced_twice_on(Model, torch.empty(2, 1000))
    assert first.ops == second.ops
    assert model.positions.shape == (70, 1000)
    assert [parameter.trainable for parameter in first.parameters] == [True, False]


def test_a_model_that_got_its_values_later_keeps_them() -> None:
    model, x = Counting(), torch.empty(2, 4)
    built: list[nn.Module] = []

    def build() -> tuple[nn.Module, torch.Tensor]:
        built.append(Counting())
        return built[0], x

    tclint.trace(build)
    later = built[0].to_empty(device="cpu")
    later.load_state_dict(model.state_dict())
    tclint.trace(lambda: (later, x))
    for name, tensor in later.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_data_of_a_weight_can_be_exchanged_whatever_has_values() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large, self.small = nn.Linear(300, 300), nn.Linear(4, 4)
            self.large.weight.data = torch.eye(300)
            self.large.bias.data = torch.ones(4).repeat(75)
            self.small.weight.is_mine = True
            kept = self.small.weight
            self.small.weight.data = torch.randn(400, 4)
            self.small.bias.data = self.large.weight.data[:, 0].repeat(2)[:400]
            assert kept is self.small.weight
            assert kept.is_mine

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.large(x), self.small(y)

    graph = tclint.trace(lambda: (Model(), (torch.empty(2, 300), torch.empty(2, 4))))
    assert [(item.name, item.shape, item.trainable) for item in graph.parameters] == [
        ("large.weight", (300, 300), True),
        ("large.bias", (300,), True),
        ("small.weight", (400, 4), True),
        ("small.bias", (400,), True),
    ]
    assert [output.shape for output in graph.outputs] == [(2, 300), (2, 400)]


def test_an_operator_that_the_model_survives_leaves_nothing() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with contextlib.suppress(RuntimeError):
                torch.einsum("ab,bc->ac", x, x)
            return x * 2

    graph = tclint.trace(lambda: (Model(), torch.empty(2, 3)))
    assert [(op.index, op.name) for op in graph.ops] == [(0, "mul")]


@since_2_5
def test_a_tensor_that_refuses_attributes_is_traced() -> None:
    class Frozen(torch.Tensor):
        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(f"frozen {name}")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.zeros(4).as_subclass(Frozen)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.table

    graph = tclint.trace(Model, torch.empty(2, 4))
    assert _names(graph) == ["add"]
