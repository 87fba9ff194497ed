"""FMT001 on sources: models that other files make, and what the project says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.rules.registry import find_rule
from tclint.engine.sources.lint import lint
from tclint.source.source_rule import SourceRule

ENGINE = """\
import torch

def train_one_epoch(model, loader, optimizer, scaler):
    for images, labels in loader:
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
MAIN = """\
from torch.nn.parallel import DistributedDataParallel
from engine import train_one_epoch
from nets import build

def main():
    model = build(3).cuda()
    model = DistributedDataParallel(model)
    train_one_epoch(model, loader, optimizer, scaler)
"""
NETS = """\
from torch import nn
from blocks import *

class Net(nn.Module):
    def __init__(self, block, channels):
        super().__init__()
        self.body = nn.Sequential(*[block(channels, 64) for _ in range(4)])
        self.head = nn.Conv2d(64, 1, 1)

def build(channels):
    return Net(Double, channels)
"""
BLOCKS = """\
from torch import nn

class Double(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.Conv2d(inputs, outputs, 3), nn.ReLU(), nn.Conv2d(outputs, outputs, 3))
"""


def linted(folder: Path, **files: str) -> list[Finding]:
    (folder / "setup.py").write_text("")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    rules = [rule() for rule in find_rule("FMT001") if issubclass(rule, SourceRule)]
    assert len(rules) == 1
    return list(lint([str(folder)], rules, Settings(cache=False)).findings)


def test_a_model_that_another_file_hands_over_is_named_with_its_place(tmp_path: Path) -> None:
    (found,) = linted(tmp_path, engine=ENGINE, main=MAIN, nets=NETS, blocks=BLOCKS)
    assert (Path(found.location.path).name, found.location.line) == ("nets.py", 11)
    (related,) = found.related
    assert (Path(related.location.path).name, related.location.line) == ("engine.py", 5)
    assert "`Net` (nets.py:11)" in found.message
    assert found.evidence["convolutions_written"] == 3
    assert found.effect.unknown


@pytest.mark.parametrize(
    ("changed", "old", "new"),
    [
        ("main", "build(3).cuda()", "build(3).cuda().to(memory_format=torch.channels_last)"),
        ("main", "DistributedDataParallel(model)", "torch.compile(model)"),
        ("nets", "nn.Conv2d(64, 1, 1)", "nn.MultiheadAttention(64, 8)"),
        ("blocks", "Conv2d", "Conv3d"),
        ("blocks", "Conv2d", "Linear"),
        ("engine", 'torch.autocast("cuda")', 'torch.autocast("cpu")'),
        ("engine", 'torch.autocast("cuda")', "torch.no_grad()"),
    ],
)
def test_the_same_project_is_left_alone_once_it_says_why(
    tmp_path: Path, changed: str, old: str, new: str
) -> None:
    files = {"engine": ENGINE, "main": MAIN, "nets": NETS, "blocks": BLOCKS}
    assert old in files[changed]
    files[changed] = files[changed].replace(old, new)
    assert linted(tmp_path, **files) == []


def test_autocast_behind_a_flag_is_said_to_be(tmp_path: Path) -> None:
    engine = ENGINE.replace('"cuda")', '"cuda", enabled=scaler.is_enabled())')
    (found,) = linted(tmp_path, engine=engine, main=MAIN, nets=NETS, blocks=BLOCKS)
    assert "where that is on" in found.message


def test_autocast_under_a_test_is_said_to_be(tmp_path: Path) -> None:
    engine = """\
import torch

def train_one_epoch(model, loader, optimizer, scaler):
    for images, labels in loader:
        if scaler is not None:
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
"""
    (found,) = linted(tmp_path, engine=engine, main=MAIN, nets=NETS, blocks=BLOCKS)
    assert "where that is on" in found.message


LOOP = """\
    for images, labels in loader:
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
"""
PLAIN = """\
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
WAYS = {
    "backward in another file": (
        "import torch\nfrom nets import build\nfrom misc import Scaler\n\n"
        "def main(loader, optimizer):\n    model = build(3).cuda()\n    loss_scaler = Scaler()\n"
        f"{LOOP}        loss_scaler(loss, optimizer, parameters=model.parameters())\n"
    ),
    "gradients cleared here": (
        "import torch\nfrom nets import build\nfrom misc import update\n\n"
        "def main(loader, optimizer):\n    model = build(3).cuda()\n"
        f"{LOOP}        optimizer.zero_grad()\n        update(loss)\n"
    ),
    "model and optimizer together": (
        "import torch\nfrom misc import both\n\n"
        f"def main(loader, scaler):\n    model, optimizer = both()\n{LOOP}{PLAIN}"
    ),
    "a dict of models": (
        "import torch\nfrom nets import build\n\n"
        "MODELS = {'plain': build, 'deep': build}\n\n"
        "def main(args, loader, scaler, optimizer):\n"
        f"    model = MODELS[args.model](3).cuda()\n{LOOP}{PLAIN}"
    ),
    "the default of an option": (
        "import argparse\nimport torch\nimport nets\n\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--arch', default='Net')\n\n"
        "def main(loader, scaler, optimizer):\n    args = parser.parse_args()\n"
        f"    model = nets.__dict__[args.arch](nets.Double, 3).cuda()\n{LOOP}{PLAIN}"
    ),
    "assigned in the base class": (
        "import torch\nfrom misc import Base\n\nclass Trainer(Base):\n"
        "    def run(self, loader, scaler, optimizer):\n"
        + (LOOP + PLAIN)
        .replace("\n", "\n    ")
        .replace("    for", "        for", 1)
        .replace("model(", "self.model(")
        .rstrip(" ")
    ),
    "handed to the base class": (
        "import torch\nfrom misc import Holder\nfrom nets import build\n\nclass Trainer(Holder):\n"
        "    def __init__(self, model, loader):\n        super().__init__(model)\n\n"
        "    def run(self, loader, scaler, optimizer):\n"
        + (LOOP + PLAIN)
        .replace("\n", "\n    ")
        .replace("    for", "        for", 1)
        .replace("model(", "self.model(")
        .rstrip(" ")
        + "\nTrainer(build(3).cuda(), loader).run()\n"
    ),
}
MISC = """\
from nets import build

class Scaler:
    def __call__(self, loss, optimizer, parameters):
        loss.backward()
        optimizer.step()

def update(loss):
    loss.backward()

def both():
    model = build(3)
    return model.cuda(), make_optimizer(model)

class Base:
    def __init__(self):
        self.model = build(3).cuda()

class Holder:
    def __init__(self, model):
        self.model = model
"""


@pytest.mark.parametrize("engine", WAYS.values(), ids=WAYS)
def test_a_model_is_found_however_it_comes(tmp_path: Path, engine: str) -> None:
    (found,) = linted(tmp_path, engine=engine, misc=MISC, nets=NETS, blocks=BLOCKS)
    assert found.evidence["model"] == "Net"


@pytest.mark.parametrize("engine", WAYS.values(), ids=WAYS)
def test_and_is_left_alone_where_it_may_be_another(tmp_path: Path, engine: str) -> None:
    nets = NETS.replace("nn.Conv2d(64, 1, 1)", "nn.TransformerEncoderLayer(64, 8)")
    assert linted(tmp_path, engine=engine, misc=MISC, nets=nets, blocks=BLOCKS) == []


def test_a_dict_with_one_model_that_is_not_known(tmp_path: Path) -> None:
    engine = WAYS["a dict of models"].replace("'deep': build", "'deep': elsewhere")
    assert linted(tmp_path, engine=engine, misc=MISC, nets=NETS, blocks=BLOCKS) == []
