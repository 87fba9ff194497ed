"""Weights that are not there: the architecture is traced, and the report says what was not loaded."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import tclint
from tclint.config.settings import Settings
from tclint.tracing import trace_targets
from tclint.tracing.patches.stored_weights import LIBRARIES, library_loaders

BUILDERS = """
import torch
from torch import nn
from torch.hub import load_state_dict_from_url
from torch.utils import model_zoo

def net(state=None, **kwargs):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    if state is not None:
        model.load_state_dict(state, **kwargs)
    return model

def missing():
    return net(torch.load("folder/gone.pt"))

def nested():
    stored = torch.load("gone.pt", map_location="cuda:0")
    if "ema" in stored:
        stored = stored["ema"]
    return net({name.replace("module.", ""): value for name, value in stored["model"].items()})

def loose():
    keys = net(torch.load("gone.pt").get("state_dict"), strict=False)
    return keys

def from_url():
    return net(torch.hub.load_state_dict_from_url("https://x.invalid/gone.pt"))

def by_name():
    return net(load_state_dict_from_url("https://x.invalid/gone.pt", map_location="cpu"))

def from_zoo():
    return net(model_zoo.load_url("https://x.invalid/gone.pt"))

def downloaded():
    torch.hub.download_url_to_file("https://x.invalid/gone.pt", "gone.pt")
    return net(torch.load("gone.pt"))

def local_hub():
    return torch.hub.load(FOLDER, "tiny", source="local", pretrained=True)

def on_gpu():
    return net(torch.load("gpu.pt", map_location="cuda"))

def itself():
    return torch.load("gone.pt")

def described():
    return nn.Linear(**torch.load("gone.pt")["model_args"])

def other_keys():
    return net({"unknown": torch.empty(3)})

def repository():
    return torch.hub.load("nobody/nothing", "net", trust_repo=True)
"""
HUB = """
import torch
dependencies = ["torch"]

def tiny(pretrained=False):
    model = torch.nn.Linear(8, 8)
    if pretrained:
        model.load_state_dict(torch.hub.load_state_dict_from_url("https://x.invalid/gone.pt"))
    return model
"""
LOADS = ("missing", "nested", "loose", "from_url", "by_name", "from_zoo", "downloaded", "local_hub")
FAILS = {
    "itself": "FileNotFoundError",
    "described": "FileNotFoundError",
    "other_keys": "loading state_dict",
    "repository": "in a clone of that repository",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    (tmp_path / "hubconf.py").write_text(HUB)
    (tmp_path / "model.py").write_text(BUILDERS.replace("FOLDER", repr(str(tmp_path))))
    _save_as_of_a_gpu(tmp_path / "gpu.pt")
    return tmp_path


def _save_as_of_a_gpu(path: Path) -> None:
    saved = io.BytesIO()
    torch.save(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).state_dict(), saved)
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("data.pkl"):  # the pickled strings with their lengths
                assert b"X\x03\x00\x00\x00cpu" in data
                data = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            target.writestr(name, data)


def test_builders_that_load_weights(folder: Path) -> None:
    names = (*LOADS, "on_gpu", *FAILS)
    results = trace_targets([f"model.py:{name}" for name in names], Settings(inputs=("4,8",)))
    by_name = dict(zip(names, results, strict=True))
    for name in LOADS:
        graph = by_name[name].graph
        assert graph is not None, (name, by_name[name].error)
        [note] = [note for note in graph.assumptions if "weights of gone.pt were not loaded" in note.what]
        assert note.site is not None, name
        assert graph.parameter_count == 8 * 8 + 8
    on_gpu = by_name["on_gpu"].graph
    assert on_gpu is not None, by_name["on_gpu"].error
    assert not any("not loaded" in note.what for note in on_gpu.assumptions)
    for name, words in FAILS.items():
        assert words in str(by_name[name].error), name


@pytest.mark.usefixtures("in_this_process")
def test_nothing_of_it_stays_in_the_callers_process(folder: Path) -> None:
    before = torch.load, torch.hub.download_url_to_file, nn.Module.load_state_dict
    kept = []

    def build() -> nn.Module:
        kept.append(torch.load)
        model = nn.Linear(8, 8)
        model.load_state_dict(torch.load("gone.pt"))
        return model

    graph = tclint.trace(build, torch.empty(4, 8))
    assert any("gone.pt" in note.what for note in graph.assumptions)
    assert before == (torch.load, torch.hub.download_url_to_file, nn.Module.load_state_dict)
    with pytest.raises(FileNotFoundError):
        kept[0]("gone.pt")
    again = tclint.trace(lambda: nn.Linear(8, 8), torch.empty(4, 8))
    assert not any("not loaded" in note.what for note in again.assumptions)


@pytest.mark.libraries
def test_pretrained_models_of_libraries(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    (folder / "stored").mkdir()
    transformers.GPT2Config(n_layer=1, n_embd=64, n_head=2).save_pretrained(folder / "stored")
    graph = tclint.trace(
        lambda: transformers.AutoModelForCausalLM.from_pretrained(str(folder / "stored")),
        torch.zeros(2, 16, dtype=torch.int64),
    )
    assert any("were not loaded" in note.what for note in graph.assumptions)
    timm = pytest.importorskip("timm")
    graph = tclint.trace(lambda: timm.create_model("resnet18", pretrained=True), torch.empty(2, 3, 64, 64))
    assert any("weights of resnet18 were not loaded" in note.what for note in graph.assumptions)


def test_libraries_that_are_being_imported_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert library_loaders() == []
