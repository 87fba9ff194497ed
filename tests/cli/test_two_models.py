"""A repository with two models and a training script for one of them, linted from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

pytest.importorskip("torch")

NET = """\
import torch
from torch import nn


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 30, 3)
        self.head = nn.Linear(30, 10)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))


def example_inputs():
    return torch.zeros(6, 3, 32, 32)


def build_convnet():
    model = ConvNet()
    return model.eval()
"""
LM = """\
import torch
from torch import nn


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 516)
        self.head = nn.Linear(516, 1000)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def example_inputs():
    return torch.zeros(4, 16, dtype=torch.long)
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader
from {module} import {name}


def main(dataset):
    model = {call}
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in DataLoader(dataset, batch_size={batch}, shuffle=True):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()


main([])
"""
MODELS = ("net.py:build_convnet", "lm.py:LM")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "lm.py").write_text(LM)
    (tmp_path / "train.py").write_text(TRAIN.format(module="lm", name="LM", call="LM()", batch=30))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--isolated", "--gpu", "a100"], catch_exceptions=False)


def report(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--format", "json").stdout)
    assert not found["errors"]
    return found


def scenarios(*arguments: str) -> dict[str, tuple[int, str]]:
    """By target: the batch and the precision that it is priced with."""
    return {
        entry["target"]: (entry["inputs"][0]["shape"][0], entry["precision"])
        for entry in report(*arguments)["entries"]
    }


def said(target: str, *arguments: str) -> str:
    [entry] = [one for one in report(*arguments)["entries"] if one["target"] == target]
    return " | ".join(assumption["what"] for assumption in entry["assumptions"])


def test_a_script_speaks_of_the_models_that_it_builds(repository: Path) -> None:
    assert scenarios(".", *MODELS) == {"net.py:build_convnet": (6, "fp16"), "lm.py:LM": (30, "bf16")}
    assert "batch 30: DataLoader" in said("lm.py:LM", ".", *MODELS)
    assert "train" not in said("net.py:build_convnet", ".", *MODELS)


def test_two_scripts_give_each_model_its_own(repository: Path) -> None:
    script = TRAIN.format(module="net", name="build_convnet", call="build_convnet()", batch=64)
    (repository / "train_net.py").write_text(script.replace("torch.bfloat16", "torch.float16"))
    assert scenarios(".", *MODELS) == {"net.py:build_convnet": (64, "fp16"), "lm.py:LM": (30, "bf16")}
    # The class that the builder returns is the model that the script builds with it.
    assert scenarios(".", "net.py:ConvNet") == {"net.py:ConvNet": (64, "fp16")}


def test_two_scripts_that_build_one_model_and_disagree(repository: Path) -> None:
    (repository / "tune.py").write_text(TRAIN.format(module="lm", name="LM", call="LM()", batch=60))
    assert scenarios(".", "lm.py:LM") == {"lm.py:LM": (4, "bf16")}
    assert "batch as the inputs have it: the scripts say" in said("lm.py:LM", ".", "lm.py:LM")


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        ("registry", "MODELS", 'MODELS["lm"]()'),
        ("registry", "create", 'create("lm")'),
        ("registry", "Trainer", "Trainer().model"),
        ("package", "LM", "LM()"),
    ],
)
def test_models_are_found_through_files_tables_and_classes(
    repository: Path, module: str, name: str, call: str
) -> None:
    (repository / "registry.py").write_text(
        'from lm import LM\n\nMODELS = {"lm": LM}\n\ndef create(name):\n    return MODELS[name]()\n\n'
        "class Trainer:\n    def __init__(self):\n        self.model = LM()\n"
    )
    (repository / "package").mkdir()
    (repository / "package" / "__init__.py").write_text("from lm import LM\n")
    (repository / "train.py").write_text(TRAIN.format(module=module, name=name, call=call, batch=30))
    assert scenarios(".", *MODELS) == {"net.py:build_convnet": (6, "fp16"), "lm.py:LM": (30, "bf16")}


def test_a_file_of_training_loops_speaks_of_its_importers_models(repository: Path) -> None:
    loop = TRAIN.format(module="os", name="path", call="model", batch=30)
    (repository / "engine.py").write_text(
        loop.replace("main(dataset)", "train(model, dataset)").replace("main([])", "")
    )
    (repository / "train.py").write_text("from engine import train\nfrom lm import LM\n\ntrain(LM(), [])\n")
    assert scenarios(".", *MODELS) == {"net.py:build_convnet": (6, "fp16"), "lm.py:LM": (30, "bf16")}


def test_what_stays_unclear_is_said_and_not_used(repository: Path) -> None:
    script = TRAIN.format(module="argparse", name="Namespace", call="globals()[name]()", batch=30)
    (repository / "train.py").write_text(script)
    assert scenarios(".", *MODELS) == {"net.py:build_convnet": (6, "fp16"), "lm.py:LM": (4, "fp16")}
    for target in MODELS:
        assert "the settings of train.py are not used: it is not clear which model is trained there" in said(
            target, ".", *MODELS
        )
    # Who names one script beside one model says what belongs together.
    assert scenarios("train.py", "lm.py:LM") == {"lm.py:LM": (30, "bf16")}


def test_a_script_of_another_model_is_not_believed_even_if_named(repository: Path) -> None:
    assert scenarios("train.py", "net.py:ConvNet") == {"net.py:ConvNet": (6, "fp16")}
    assert "train.py builds LM, not this model" in said("net.py:ConvNet", "train.py", "net.py:ConvNet")


ALONE = """\
import timm
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from wide import Wide


def main(dataset):
    model = {loads}
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for x in DataLoader(dataset, batch_size=32, shuffle=True):
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


main([])
"""
WIDE = """\
import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))

    def forward(self, x):
        return self.layers(x)


def example_inputs():
    return torch.zeros(32, 4096)
"""


def test_a_script_read_alone_names_the_model_that_prices_its_findings(repository: Path) -> None:
    (repository / "wide.py").write_text(WIDE)
    (repository / "train.py").write_text(ALONE.format(loads="Wide()"))
    for _ in ("read", "kept from that run"):
        alone = run("train.py")
        assert "'tclint train.py wide.py:Wide'" in alone.stderr
        assert "AMP016" in alone.stdout
    assert run("train.py", "wide.py:Wide").stderr == ""
    [autocast] = [one for one in report("train.py", "wide.py:Wide")["findings"] if one["code"] == "AMP016"]
    assert autocast["effect"]["a100-sxm4-80gb"]["gain_us"] > 0


@pytest.mark.parametrize(
    ("loads", "target"),
    [
        ('AutoModelForCausalLM.from_pretrained("gpt2")', "hf:gpt2"),
        ('timm.create_model("resnet50")', "timm:resnet50"),
        ("AutoModelForCausalLM.from_pretrained(input())", None),
        ("torch.load(input())", None),
    ],
)
def test_models_of_libraries_have_targets_too(repository: Path, loads: str, target: str | None) -> None:
    (repository / "train.py").write_text(ALONE.format(loads=loads))
    ran = run("train.py")
    assert "RUN014" in ran.stdout
    assert ("prices" in ran.stderr) == (target is not None)
    assert target is None or f"'tclint train.py {target}'" in ran.stderr
