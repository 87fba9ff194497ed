"""Every form in which people hold a model, through `tclint.trace` and `tclint.check`."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tclint
from tclint.config.settings import Settings
from tclint.core.errors import TargetError, UsageError
from tclint.graph.lowering.gradients import gradient_needs
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph
from tclint.tracing.worker.entry import split_built

FLOPS = 2 * 32 * (16 * 24 + 24 * 8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(16, 24), nn.Dropout(), nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.first(x)).relu())


def given() -> Tensor:
    return torch.ones(32, 16)


def build() -> Net:
    return Net()


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Net().eval(), (given(),))


def saved(folder: Path) -> str:
    torch.export.save(exported(), folder / "net.pt2")
    return str(folder / "net.pt2")


FORMS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "instance": (lambda _: Net(), "Net"),
    "class": (lambda _: Net, "Net"),
    "builder": (lambda _: build, "build"),
    "graph module": (lambda _: torch.fx.symbolic_trace(Net()), "Net"),
    "exported program": (lambda _: exported(), "ExportedProgram"),
    "file of an exported program": (saved, "net.pt2"),
    "module of an exported program": (lambda _: exported().module(), "GraphModule"),
    "compiled": (lambda _: torch.compile(Net()), "Net"),
    "scripted": (lambda _: torch.jit.script(Net()), "Net"),
    "traced": (lambda _: torch.jit.trace(Net().eval(), given()), "Net"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize(
    ("form", "mode"), [*((form, "train") for form in FORMS), ("instance", "infer"), ("scripted", "infer")]
)
def test_every_form_is_traced_and_checked(form: str, mode: Any, tmp_path: Path) -> None:
    make, name = FORMS[form]
    model = make(tmp_path)
    is_module = isinstance(model, nn.Module)
    before = {key: value.clone() for key, value in model.state_dict().items()} if is_module else {}
    modes = [module.training for module in model.modules()] if is_module else []
    graph = tclint.trace(model) if "export" in form else tclint.trace(model, given())
    assert forward_flops(graph) == FLOPS
    assert graph.parameter_count == 17 * 24 + 25 * 8

    settings = tclint.Settings(mode=mode, inputs=() if "export" in form else ("32,16",))
    report = tclint.check([model], settings)
    assert [error.message for error in report.errors] == []
    (entry,) = report.entries
    assert entry.target.rpartition("/")[2] == name
    assert forward_flops(entry.graph) == FLOPS
    if is_module:
        assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())


CELL = """
import torch
from torch import nn

class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 1001)

    def forward(self, x):
        return self.head(x).relu()

def build_cell():
    return Cell(), torch.zeros(4096, 64)
"""


@pytest.mark.parametrize("name", ["<ipython-input-3-abc>", "/tmp/ipykernel_99/7.py"])
def test_a_model_of_a_notebook_cell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, name, (len(CELL), None, CELL.splitlines(True), name))
    cell: dict[str, Any] = {"__name__": "__main__"}
    monkeypatch.setattr(sys.modules["__main__"], "Cell", None, raising=False)
    exec(compile(CELL, name, "exec"), cell)
    graph = tclint.trace(cell["Cell"](), torch.zeros(4096, 64))
    assert {(op.call_site.path, op.call_site.line) for op in graph.ops if op.call_site} == {(name, 11)}
    for target, line in ((cell["build_cell"], 8), (cell["Cell"](), 11)):
        report = tclint.check(target, tclint.Settings(inputs=("4096,64",)))
        (finding,) = (one for one in report.findings if one.code == "DIM001")
        assert finding.location.path.endswith(name.rpartition("/")[2])
        assert finding.location.line == line


def test_the_inputs_of_a_model_of_transformers() -> None:
    class Reader(nn.Module):
        main_input_name = "input_ids"

        def __init__(self) -> None:
            super().__init__()
            tokens, types = torch.ones(3, 5, dtype=torch.int64), torch.ones(3, 5)
            self.dummy_inputs = {"input_ids": tokens, "token_type_ids": types}
            self.embed, self.head = nn.Embedding(10, 16), nn.Linear(16, 2)

        def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
            return self.head(self.embed(input_ids) + token_type_ids.unsqueeze(-1))

    assert {spec.input_name: spec.shape for spec in tclint.trace(Reader()).inputs} == {
        "input_ids": (3, 5),
        "token_type_ids": (3, 5),
    }


def test_a_component_of_a_pipeline_of_diffusers() -> None:
    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = SimpleNamespace(sample_size=16, in_channels=4, cross_attention_dim=24)
            self.conv, self.keys = nn.Conv2d(4, 8, 3, padding=1), nn.Linear(24, 8)

        def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Tensor:
            maps = self.conv(sample) * timestep.view(-1, 1, 1, 1)
            return functional.softmax(
                maps.flatten(2).transpose(1, 2) @ self.keys(encoder_hidden_states).mT, -1
            )

    pipeline = SimpleNamespace(unet=Denoiser())
    assert [spec.shape for spec in tclint.trace(pipeline.unet).inputs] == [(8, 4, 16, 16), (8,), (8, 77, 24)]
    (entry,) = tclint.check(pipeline.unet).entries
    assert entry.target == "Denoiser"


class ModelProto:
    """As onnx.load returns it."""


def test_what_is_no_model_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"\x08\x01")
    with pytest.raises(TargetError, match=r"net.onnx: an ONNX model knows nothing of the PyTorch code"):
        tclint.trace(str(tmp_path / "net.onnx"))
    with pytest.raises(TargetError, match=r"^An ONNX model knows nothing of the PyTorch code"):
        tclint.trace(ModelProto())
    with pytest.raises(UsageError, match=r"^An ONNX model knows nothing of the PyTorch code"):
        tclint.check(ModelProto())
    with pytest.raises(TargetError, match=r"'net.py:build' is no file of a model: .* tclint.check takes"):
        tclint.trace("net.py:build")
    with pytest.raises(TargetError, match="a model, or a callable that builds one; 3 is an int"):
        tclint.trace(3)


def test_what_a_builder_returns_beside_the_model_is_inputs_only_where_it_holds_tensors() -> None:
    model, other, images = nn.Linear(4, 4), nn.Linear(2, 2), torch.empty(8, 4)
    assert split_built((model, images), "build") == (model, images, ())
    assert split_built((model, {"x": images}), "build") == (model, {"x": images}, ())
    assert split_built((model, object()), "build") == (model, None, ())
    assert split_built([object(), model], "build") == (model, None, ())
    assert split_built({"net": model, "tokenizer": object()}, "build") == (model, None, ())
    chosen, returned, (told,) = split_built((nn.CrossEntropyLoss(), model, other), "build")
    assert (chosen, returned) == (model, None)
    assert told.what == (
        "the model is Linear, of 3 modules that build returned (CrossEntropyLoss, Linear and Linear); "
        "to lint another, name what builds it alone"
    )


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(100, 8), nn.Linear(8, 100)

    def forward(self, *, input_ids: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden = self.words(input_ids)
        return self.head(hidden if mask is None else hidden * mask[..., None])


@pytest.mark.parametrize("texts", [(), ("int64[8,128]",), ("input_ids=int64[8,128]", "mask:=None")])
def test_a_forward_that_takes_keywords_only(texts: tuple[str, ...]) -> None:
    report = tclint.check(ByKeyword, settings=Settings(inputs=texts))
    assert report.errors == ()
    assert [spec.input_name for spec in report.entries[0].graph.inputs] == ["input_ids"]


_FILE = """
import torch
from torch import distributed, nn
from torch.nn import functional

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 24), nn.Linear(24, 8)

    def forward(self, x, scale=1.0):
        return self.last(self.first(x).relu()) * scale

model = nn.Sequential(nn.Linear(16, 24))
net = Net().cuda()

def exported():
    inputs, named = (torch.ones(32, 16),), {"scale": torch.ones(32, 8)}
    return torch.export.export(Net(), inputs, named, dynamic_shapes=None).run_decompositions().module()

class Alone(Net):
    def __init__(self):
        assert not distributed.is_initialized() or distributed.get_backend() == "nccl"
        super().__init__()
        self.group = distributed.new_group([distributed.get_rank()])
        self.norm = nn.SyncBatchNorm(24)

    def forward(self, x):
        hidden = self.norm(self.first(x))
        parts = [torch.empty_like(hidden) for _ in range(distributed.get_world_size(self.group))]
        distributed.all_gather(tensor_list=parts, tensor=hidden, group=self.group)
        work = distributed.all_reduce(parts[0], async_op=True)
        work.wait()
        return self.last(torch.cat(parts))

def alone():
    distributed.init_process_group("nccl")
    assert distributed.is_initialized()
    return Alone()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.py"
    path.write_text(_FILE)
    return path


def _graph(target: str, **settings: Any) -> Graph:
    report = tclint.check(target, settings=Settings(cache=False, **settings))
    assert report.errors == ()
    return report.entries[0].graph


@pytest.mark.usefixtures("file")
def test_models_that_stand_in_a_file() -> None:
    model, net = _graph("net.py:model"), _graph("net.py:net")
    assert [op.name for op in model.ops] == ["linear"]
    assert [op.name for op in net.ops] == ["linear", "relu", "linear", "mul"]
    assert [graph.root_site and graph.root_site.line for graph in (model, net)] == [14, 6]
    report = tclint.check("net.py:net", settings=Settings(cache=False, arguments=("width=8",)))
    assert "net.py:net is built already, and takes no argument 'width'" in report.errors[0].message


@pytest.mark.usefixtures("file")
def test_a_builder_that_exports_its_model_is_traced_on_the_inputs_of_the_export() -> None:
    graph = _graph("net.py:exported")
    assert {spec.input_name: spec.shape for spec in graph.inputs} == {"x": (32, 16), "scale": (32, 8)}
    assert [op.module_path for op in graph.ops if op.kind == "linear"] == ["first", "last"]


@pytest.mark.usefixtures("file")
def test_a_process_that_is_alone_in_its_group() -> None:
    for target in ("net.py:Alone", "net.py:alone"):
        graph = _graph(target, inputs=("32,16",))
        assert [op.kind for op in graph.ops if op.kind in ("linear", "norm")] == ["linear", "norm", "linear"]
        needs = gradient_needs(graph)
        assert needs[0][1]  # the first layer's weight learns through what was gathered


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("name", ["weights.th", "weights.ckpt", "weights.safetensors"])
def test_files_of_weights_are_named(name: str) -> None:
    Path(name).write_bytes(b"")
    report = tclint.check(name)
    assert "is a file of weights, which holds no Python to trace" in report.errors[0].message
