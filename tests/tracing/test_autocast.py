"""torch.autocast inside of a forward: what runs in which dtype, and what a model takes out of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tclint
from tclint.cost.transforms.casts import apply_precision
from tclint.graph.ops import Graph


class Scale(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[override]
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad, None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))


class Island(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        with torch.autocast(x.device.type, enabled=False):
            x = self.b(x.float())
        return self.c(x)


class OwnRegion(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = self.a(x)
            with torch.autocast("cuda", enabled=False):
                x = self.b(x.float())
                with torch.autocast("cuda", dtype=torch.float16):
                    x = self.b(x)
                x = self.b(x.float())
            return self.c(x)


class Decorated(Net):
    @torch.autocast("cuda", enabled=False)
    def inner(self, x: Tensor) -> Tensor:
        return self.b(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.inner(self.a(x)))


class Raising(Net):
    def forward(self, x: Tensor) -> Tensor:
        try:
            with torch.autocast("cuda", enabled=False):
                x = self.a(x)
                raise KeyError
        except KeyError:
            return self.b(x)


class Custom(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.c(Scale.apply(self.a(x), self.b.weight))


class CustomInRegion(Custom):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.float16):
            return super().forward(x)


class OfTheCpu(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return self.a(x)


def products(graph: Graph) -> list[tuple[str, bool]]:
    return [(op.inputs[0].dtype, op.autocast_disabled) for op in graph.ops if op.name in ("linear", "matmul")]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (Island, [("float32", False), ("float32", True), ("float32", False)]),
        (
            OwnRegion,
            [
                ("bfloat16", False),
                ("float32", True),
                ("float16", False),
                ("float32", True),
                ("bfloat16", False),
            ],
        ),
        (Decorated, [("float32", False), ("float32", True), ("float32", False)]),
        (Raising, [("float32", True), ("float32", False)]),
        (Custom, [("float32", False), ("float32", True), ("float32", False)]),
        (CustomInRegion, [("float16", False), ("float32", True), ("float16", False)]),
        (OfTheCpu, [("float32", False)]),
    ],
)
def test_what_a_model_takes_out_of_autocast(build: type[nn.Module], expected: list[tuple[str, bool]]) -> None:
    graph = tclint.trace(build, torch.empty(2, 8))
    assert products(graph) == expected
    assert products(Graph.from_json(graph.to_json())) == expected


def test_autocast_around_the_model_leaves_it_alone() -> None:
    graph = apply_precision(tclint.trace(Island, torch.empty(2, 8)), "fp16", "train")
    assert products(graph) == [("float16", False), ("float32", True), ("float16", False)]
    _, inside, after = graph.ops
    assert [(cast.from_dtype, cast.to_dtype) for cast in inside.casts] == [("float16", "float32")]
    assert inside.outputs[0].dtype == "float32"
    assert ("float32", "float16") in [(cast.from_dtype, cast.to_dtype) for cast in after.casts]
