"""Graphs that other tracers of torch made are traced like the models that they were made from."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import tclint
from tclint.core.errors import TargetError
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.head = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        maps = functional.relu(self.norm(self.first(images)))
        maps = functional.max_pool2d(maps + self.second(maps), 2)
        return self.head(maps.mean((2, 3)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16, bias=False)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(x)).view(2, 6, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).reshape(2, 6, 16))
        return x + self.down(functional.gelu(self.up(x)))


CASES = {"residual": (Residual, (2, 3, 8, 8)), "block": (Block, (2, 6, 16))}


def symbolic(model: nn.Module, given: Tensor) -> Graph:
    module = torch.fx.symbolic_trace(model)
    return tclint.trace(lambda: module, given)


def made(model: nn.Module, given: Tensor) -> Graph:
    module = make_fx(model)(given)
    return tclint.trace(lambda: module, given)


def exported(model: nn.Module, given: Tensor) -> Graph:
    program = torch.export.export(model, (given,))
    return tclint.trace(lambda: program)


def decomposed(model: nn.Module, given: Tensor) -> Graph:
    program = torch.export.export(model, (given,)).run_decompositions()
    return tclint.trace(lambda: program)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tracer", [symbolic, made, exported, decomposed])
def test_as_many_flops(case: str, tracer: Callable[[nn.Module, Tensor], Graph]) -> None:
    build, shape = CASES[case]
    model, given = build().eval(), torch.rand(shape)
    eager = tclint.trace(lambda: model, given)
    with torch.no_grad():
        graph = tracer(model, given)
    assert forward_flops(graph) == forward_flops(eager) > 0
    assert graph.parameter_count == eager.parameter_count
    assert [spec.shape for spec in graph.inputs] == [shape]
    assert [spec.shape for spec in graph.outputs] == [spec.shape for spec in eager.outputs]
    assert graph.assumptions == ()


def test_split_linear_layers_are_linear_again() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4, bias=False)).eval()
    graph = decomposed(model, torch.rand(3, 6))
    assert [op.name for op in graph.ops] == ["linear", "relu", "linear"]
    assert [op.input_names for op in graph.ops[::2]] == [("input", "weight", "bias"), ("input", "weight")]
    assert [[spec.parameter for spec in op.inputs] for op in graph.ops[::2]] == [
        [None, "0.weight", "0.bias"],
        [None, "2.weight"],
    ]
    assert [spec.producer for op in graph.ops for spec in op.inputs[:1]] == [None, 0, 1]


def test_products_with_other_transposed_matrices_stay_products() -> None:
    class Gram(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mm(x.t())

    graph = decomposed(Gram(), torch.rand(4, 6))
    assert [op.kind for op in graph.ops] == ["view", "matmul"]


@pytest.mark.parametrize("tracer", [symbolic, exported])
def test_modules_and_lines_are_kept(tracer: Callable[[nn.Module, Tensor], Graph]) -> None:
    graph = tracer(Residual().eval(), torch.rand(2, 3, 8, 8))
    convolutions = [op for op in graph.ops if op.kind == "conv"]
    assert [(op.module_path, op.module_type) for op in convolutions] == [
        ("first", "Conv2d"),
        ("second", "Conv2d"),
    ]
    if tracer is exported:
        assert {Path(op.call_site.path).name for op in convolutions if op.call_site} == {Path(__file__).name}


def test_a_line_that_the_graph_carries() -> None:
    module = torch.fx.symbolic_trace(Residual().eval())
    for node in module.graph.nodes:
        node.meta["stack_trace"] = f'  File "{__file__}", line 7, in forward\n    code'
    convolution = next(
        op for op in tclint.trace(lambda: module, torch.rand(2, 3, 8, 8)).ops if op.kind == "conv"
    )
    assert convolution.call_site is not None
    assert (convolution.call_site.path, convolution.call_site.line) == (__file__, 7)


def test_a_program_with_graphs_of_its_own_is_run() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.first(x)
            return self.last(x)

    given = torch.rand(3, 4)
    assert forward_flops(exported(Frozen(), given)) == 2 * 3 * (4 * 8 + 8 * 2)


def test_a_saved_program() -> None:
    file = io.BytesIO()
    torch.export.save(torch.export.export(Residual().eval(), (torch.rand(2, 3, 8, 8),)), file)

    def build() -> torch.export.ExportedProgram:
        file.seek(0)
        return torch.export.load(file)

    graph = tclint.trace(build)
    assert forward_flops(graph) == forward_flops(tclint.trace(Residual, torch.rand(2, 3, 8, 8)))
    assert graph.metadata["model"] == "ExportedProgram"


def test_an_exported_program_is_a_model_by_itself() -> None:
    net = nn.Sequential(nn.Linear(16, 24), nn.ReLU())
    program = torch.export.export(net, (torch.randn(8, 16),))
    graph = tclint.trace(program)
    assert [op.kind for op in graph.ops] == ["linear", "elementwise"]
    assert tclint.trace(program, inputs=torch.randn(8, 16)).inputs == graph.inputs
    report = tclint.check([program])
    assert [entry.target for entry in report.entries] == ["ExportedProgram"]


def test_other_inputs_than_those_of_an_export_are_refused() -> None:
    program = torch.export.export(nn.Linear(16, 24), (torch.randn(8, 16),))
    with pytest.raises(TargetError, match=r"exported with inputs of other sizes \(float32 8x16\)"):
        tclint.trace(program, inputs=torch.randn(4, 16))
