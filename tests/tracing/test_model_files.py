"""Targets that are files of models: programs of torch.export are traced, what else there is is said."""

from __future__ import annotations

import importlib
import json
import zipfile
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from tclint.cli.main import cli

_NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 1001)

    def forward(self, x):
        return self.head(x).relu()
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """A model whose class stands in a file of the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"net_{tmp_path.name}"
    Path(f"{name}.py").write_text(_NET)
    model: nn.Module = importlib.import_module(name).Net().eval()
    return model


@pytest.fixture
def program(net: nn.Module) -> str:
    _save(net, 4096)
    return "net.pt2"


def _save(net: nn.Module, rows: int) -> None:
    torch.export.save(torch.export.export(net, (torch.rand(rows, 64),)), "net.pt2")


def _run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, arguments)
    return result.exit_code, result.stdout, result.output


def test_a_program_is_traced_at_its_own_lines(program: str, net: nn.Module) -> None:
    code, text, _ = _run(program, "--format", "json", "--exit-zero")
    report = json.loads(text)
    assert code == 0
    assert [entry["target"] for entry in report["entries"]] == [program]
    assert report["entries"][0]["flops"] == 2 * 4096 * 64 * 1001
    found = [finding for finding in report["findings"] if finding["code"] == "DIM001"]
    assert found
    assert {Path(finding["location"]["path"]).name for finding in found} == {type(net).__module__ + ".py"}
    _, text, _ = _run(program, "--exit-zero")
    assert "net.pt2" in text
    assert "PK" not in text  # its bytes are no source


def test_a_program_that_changed_is_traced_again(net: nn.Module) -> None:
    for rows in (8, 16):
        _save(net, rows)
        _, text, _ = _run("net.pt2", "--format", "json", "--exit-zero")
        assert json.loads(text)["entries"][0]["flops"] == 2 * rows * 64 * 1001


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("net.onnx", "net.onnx: an ONNX model knows nothing of the PyTorch code"),
        ("weights.pt", "weights.pt is a file of weights, which holds no Python to trace; name what builds"),
        ("script.pt", "script.pt is a TorchScript archive, which holds no Python to trace; name what builds"),
        ("broken.pt2", "cannot load broken.pt2"),
        ("missing.pt2", "There is no file or folder 'missing.pt2'"),
    ],
)
def test_other_files_are_refused_in_one_sentence(name: str, message: str, net: nn.Module) -> None:
    torch.save(net.state_dict(), "weights.pt")
    with zipfile.ZipFile("script.pt", "w") as archive:  # as torch.jit.save, which is deprecated, lays it out
        archive.writestr("script/code/__torch__.py", "")
        archive.writestr("script/constants.pkl", "")
    Path("net.onnx").write_bytes(b"\x08\x01")
    Path("broken.pt2").write_bytes(b"nothing")
    code, _, said = _run(name)
    assert code == 2
    assert message in " ".join(said.split())
    assert "Traceback" not in said


def test_a_program_takes_no_arguments(program: str) -> None:
    code, _, said = _run(program, "--arg", "width=3")
    assert code == 2
    assert "net.pt2 is built already, and takes no argument 'width'" in " ".join(said.split())
