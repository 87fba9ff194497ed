"""`torch.compile(model, backend="tclint")`: lints what Dynamo captures, and never disturbs the run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from versions import since_2_5

import tclint
from tclint.graph.lowering.step import forward_flops
from tclint.integrations import dynamo


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 333)
        self.blocks = nn.ModuleList([nn.Linear(333, 333) for _ in range(2)])
        self.norm = nn.BatchNorm1d(333)
        self.register_buffer("scale", torch.ones(333))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x).relu()
        print("Dynamo cannot print")
        return self.norm(x) * self.scale * x.shape[0]


BREAK = next(
    number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "cannot print" in line
)


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch.compiler.reset()
    dynamo.reset()
    yield
    dynamo.reset()


@pytest.fixture
def compiled() -> tuple[Net, Any]:
    torch.manual_seed(0)
    model = Net()
    return model, torch.compile(model, backend="tclint", options={"gpu": ["h100"], "min_gain": 0})


@since_2_5
def test_the_run_is_eager_and_every_graph_is_an_entry(compiled: tuple[Net, Any]) -> None:
    model, run = compiled
    given = torch.randn(32, 64)
    run(given).sum().backward()
    gradient = model.first.weight.grad
    model.zero_grad()
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    model(given).sum().backward()
    assert torch.equal(gradient, model.first.weight.grad)
    assert buffers["norm.num_batches_tracked"] == 1

    first, second = dynamo.report().entries
    assert first.target.startswith("graph 1 (")
    assert "test_dynamo.py:" in first.target
    assert [op.module_path for op in first.graph.ops if op.kind == "linear"] == [
        "first",
        "blocks.0",
        "blocks.1",
    ]
    assert {parameter.name for parameter in second.graph.parameters} >= {"norm.weight", "scale"}
    eager = tclint.trace(model, given)
    assert forward_flops(first.graph) == forward_flops(eager)
    assert first.graph.parameter_count + second.graph.parameter_count == eager.parameter_count
    assert [spec.input_name for spec in first.graph.inputs] == ["x"]
    assert set(first.metrics) == {"h100-sxm5-80gb"}


def test_findings_stand_at_the_lines_of_the_forward(compiled: tuple[Net, Any]) -> None:
    compiled[1](torch.randn(4096, 64))
    (finding,) = (one for one in dynamo.report().findings if one.code == "DIM001")
    assert Path(finding.location.path).name == "test_dynamo.py"
    assert finding.location.line == BREAK - 1  # the blocks are most of it


def test_graph_breaks_have_their_lines(compiled: tuple[Net, Any]) -> None:
    compiled[1](torch.randn(32, 64))
    (ended,) = dynamo.graph_breaks()
    assert (Path(ended.path).name, ended.line) == ("test_dynamo.py", BREAK)
    assert "builtin" in ended.reason


def test_the_report_is_printed_once_after_the_first_run(
    compiled: tuple[Net, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    compiled[1](torch.randn(32, 64))
    assert "graph 1" not in capsys.readouterr().err
    compiled[1](torch.randn(32, 64))
    printed = capsys.readouterr().err
    assert "graph 1 (" in printed
    assert "graph 2 (" in printed
    assert f"test_dynamo.py:{BREAK}: " in printed.partition("1 graph break:")[2]
    for rows in (32, 48, 7):  # other sizes are captured anew
        compiled[1](torch.randn(rows, 64))
    assert capsys.readouterr().err == ""
    assert len(dynamo.report().entries) == 2


def test_what_never_runs_again_is_printed_in_the_end(
    compiled: tuple[Net, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    compiled[1](torch.randn(32, 64))
    dynamo._print_the_rest()  # as atexit does
    assert "graph 2 (" in capsys.readouterr().err


def test_without_gradients_it_is_inference() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    with torch.no_grad():
        torch.compile(model, backend=dynamo.backend)(torch.randn(4, 16))
    assert dynamo.report().settings.mode == "infer"
    assert dynamo.report().settings.compiled


def test_the_same_lines_with_other_weights_are_another_graph() -> None:
    def block(x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight

    run = torch.compile(block, backend=dynamo.backend)
    for width in (8, 16):
        run(torch.ones(4, 32), nn.Parameter(torch.ones(32, width)))
    assert [entry.graph.ops[0].outputs[0].shape for entry in dynamo.report().entries] == [(4, 8), (4, 16)]


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_may_vary(dynamic: bool | None) -> None:
    class Rows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.view(x.shape[0] * 2, -1) @ x.new_ones(8, 5)).sum() / x.shape[0]

    run = torch.compile(Rows(), backend=dynamo.backend, dynamic=dynamic)
    for rows in (4, 6):
        assert run(torch.ones(rows, 16)) == 2 * 8 * 5
    (entry,) = dynamo.report().entries
    assert forward_flops(entry.graph) == 2 * 8 * 8 * 5


def test_errors_of_its_own_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = nn.Linear(16, 8), torch.randn(4, 16)
    run = torch.compile(model, backend=dynamo.backend, options={"gpuu": "a100"})
    with pytest.warns(UserWarning, match=r"There is no option 'gpuu'. Did you mean 'gpu'\?"):
        assert torch.equal(run(given), model(given))

    def fail(*_: Any) -> None:
        raise RuntimeError("broken")

    torch.compiler.reset()
    monkeypatch.setattr(dynamo, "captured", fail)
    with pytest.warns(UserWarning, match="RuntimeError: broken"):
        assert torch.equal(torch.compile(model, backend=dynamo.backend)(given), model(given))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told once
        torch.compile(model, backend=dynamo.backend)(given)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("L_self_modules_layers_modules_0_parameters_weight_", "layers.0.weight"),
        ("L_self_parameters_position_", "position"),
        ("L_model_modules_norm_buffers_running_mean_", "norm.running_mean"),
        ("L_x_", None),
    ],
)
def test_names_of_weights(target: str, name: str | None) -> None:
    node = torch.fx.Graph().placeholder(target)
    assert dynamo._weight_name(node, torch.zeros(2)) == name
