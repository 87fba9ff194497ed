"""`tclint models`: what is listed, how it is called, and that nothing runs."""

from __future__ import annotations

import json
from pathlib import Path

import in_process
import pytest

from tclint.cli.main import cli
from tclint.engine.model_listing.candidates import Candidate, list_models

LAYERS = """
import torch.nn as nn
raise SystemExit("this must never run")

class Block(nn.Module):
    def __init__(self, width): ...
    def forward(self, x): ...

class Base(nn.Module):
    def helper(self): ...
"""

MODEL = """
from __future__ import annotations
import torch
from torch import nn
import torchvision
from layers import Base, Block as B
from layers import Block

raise SystemExit("this must never run")

class Net(Base):
    def __init__(self, width: int = 64):
        self.block = Block(width)
    def forward(self, x): ...

class Small(Net): ...

class Stack(nn.Sequential): ...

class Sized(nn.Module):
    def __init__(self, width, *, depth, bias=True): ...
    def forward(self, x): ...

class Alone(nn.Module):
    def __init__(self, width, *, depth, bias=True): ...
    def forward(self, x): ...

class Loader(torch.utils.data.Dataset):
    def forward(self): ...

class _Private(nn.Module):
    def forward(self, x): ...

def direct(): return nn.Linear(3, 4)
def through_a_variable(width=3):
    model = Net(width)
    model.eval()
    return model
def with_inputs(): return Net(), torch.zeros(3)
def moved(): return Net().to("cuda").half()
def of_another(): return through_a_variable(8)
def of_a_library(): return torchvision.models.resnet18(weights=None)
def annotated(width) -> nn.Module: return registry[width]()
def sized(): return Sized(3, depth=4)
def build_model(): return registry["x"]()
def loss_of(model): return torch.zeros(3)
def test_it(): return Net()
def _private(): return Net()
def outer():
    def inner(): return Net()
    return 3

EXAMPLE_INPUTS = (3,)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def listed(*paths: Path) -> dict[str, Candidate]:
    found, unread = list_models([str(path) for path in paths])
    assert not unread
    return {candidate.target: candidate for candidate in found}


def test_what_is_listed(folder: Path) -> None:
    found = listed(folder / "model.py", folder / "layers.py")
    assert set(found) == {
        f"model.py:{name}"
        for name in [
            "direct",
            "through_a_variable",
            "with_inputs",
            "moved",
            "of_another",
            "of_a_library",
            "annotated",
            "sized",
            "build_model",
            "Net",
            "Small",
            "Stack",
            "Alone",
        ]
    }
    assert {name for name, candidate in found.items() if not candidate.certain} == {"model.py:build_model"}
    assert found["model.py:Alone"].needs == ("width", "depth")
    assert found["model.py:annotated"].needs == ("width",)
    assert found["model.py:Small"].needs == ()
    assert found["model.py:Net"].inputs == "EXAMPLE_INPUTS"
    assert MODEL.splitlines()[found["model.py:Net"].line - 1] == "class Net(Base):"


HEAD = "import torch\nfrom torch import nn\n"
NET = "class {name}(nn.Module):\n    def __init__(self, {arguments}): ...\n    def forward(self, x): ...\n"


def net(name: str, arguments: str = "") -> str:
    return NET.format(name=name, arguments=arguments)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(
            net("Whole", "encoder, decoder")
            + net("Encoder", "width")
            + net("Decoder", "width")
            # What is handed to a model that is built is a part of it.
            + "def _build(width):\n    net = Whole(Encoder(width), decoder=Decoder(width))\n    return net\n"
            "def build_large(checkpoint=None):\n    return _build(width=1280)\n",
            {"build_large"},
            id="through a private builder",
        ),
        pytest.param(
            "import timm.models.vision_transformer\n"
            "class VisionTransformer(timm.models.vision_transformer.VisionTransformer): ...\n"
            "def vit_base(**options):\n    model = VisionTransformer(**options)\n    return model\n",
            {"VisionTransformer", "vit_base"},
            id="a library's class of the same name",
        ),
        pytest.param(
            net("CLIP", "width") + "def build_model(state):\n    return CLIP(state['width']).eval()\n",
            {"CLIP", "build_model"},
            id="a builder that needs arguments hides no class",
        ),
        pytest.param(
            net("Net")
            + net("FocalLoss")
            + net("SetCriterion")
            + net("PostProcess")
            + net("EMA")
            + net("DataParallel", "module")
            + net("Exported", "model")
            + "def tokenize() -> nn.Module: return 1\ndef build_matcher() -> nn.Module: return 1\n"
            "def create_loss() -> nn.Module: return 1\n",
            {"Net"},
            id="losses, tokenizers, wrappers",
        ),
        pytest.param(
            net("Net")
            + "def fuse(model):\n    fused = nn.Sequential(model)\n    return fused\n"
            + "def fuse_two(conv, bn):\n    fused = nn.Conv2d(3, 3, 1)\n    return fused\n",
            {"Net"},
            id="functions that change a given model",
        ),
        pytest.param(net("Teacher", "net"), {"Teacher"}, id="a class that takes a network trains it"),
        pytest.param(
            "class Net(nn.Module):\n    def __init__(self):\n        self.ff = feed_forward(3)\n"
            "    def forward(self, x): ...\n"
            "def feed_forward(width):\n    return nn.Sequential(nn.Linear(width, width), Gate())\n"
            + net("Gate"),
            {"Net"},
            id="a function that a module calls, and what it builds",
        ),
        pytest.param(
            "class Net(nn.Module):\n    def forward(self, x):\n        return isinstance(x, Other)\n"
            + net("Other"),
            {"Net", "Other"},
            id="compared with is not built",
        ),
        pytest.param(
            "import megengine.module as M\nclass Net(M.Module):\n    def forward(self, x): ...\n"
            + net("Torch"),
            {"Torch"},
            id="another framework's modules",
        ),
        pytest.param(
            net("Net") + "def get_ext_modules():\n    return []\n"
            "def make_model():\n    def decorator(function): return function\n    return decorator\n",
            {"Net"},
            id="lists of modules and decorators",
        ),
        pytest.param(net("Net") + net("ConvBlock") + net("QuickGELU"), {"Net"}, id="layers beside a model"),
        pytest.param(net("ConvBlock") + net("QuickGELU"), {"ConvBlock", "QuickGELU"}, id="only layers"),
        pytest.param(
            net("BaseNet") + "class Net(BaseNet): ...\n" + net("Plain") + "class More(Plain): ...\n",
            {"Net", "Plain", "More"},
            id="abstract by its name",
        ),
        pytest.param(
            net("Net")
            + "class Policy(nn.Module):\n    def forward(self):\n        raise NotImplementedError\n"
            "    def act(self, state): ...\n",
            {"Net"},
            id="a forward that is left out",
        ),
    ],
)
def test_what_is_a_model(folder: Path, code: str, expected: set[str]) -> None:
    (folder / "code.py").write_text(HEAD + code)
    assert {candidate.name for candidate in listed(folder / "code.py").values()} == expected


def test_losses_by_their_file_and_tests_are_left_out(folder: Path) -> None:
    (folder / "losses").mkdir()
    (folder / "tests").mkdir()
    for path in ("losses/perceptual.py", "loss.py", "tests/helpers.py", "test_net.py", "net.py"):
        (folder / path).write_text(HEAD + net("Net"))
    paths = [folder / path for path in ("losses/perceptual.py", "loss.py", "tests/helpers.py", "test_net.py")]
    assert set(listed(*paths, folder / "net.py")) == {"net.py:Net"}
    assert set(listed(folder / "tests/helpers.py")) == {"tests/helpers.py:Net"}


def test_an_import_tells_which_of_two_classes_is_built(folder: Path) -> None:
    for name in ("first", "second"):
        (folder / f"{name}.py").write_text(HEAD + net("ViT"))
    (folder / "whole.py").write_text(
        HEAD + "from second import ViT\nclass Whole(nn.Module):\n"
        "    def __init__(self): self.vit = ViT()\n    def forward(self, x): ...\n"
    )
    found = listed(folder / "first.py", folder / "second.py", folder / "whole.py")
    assert set(found) == {"first.py:ViT", "whole.py:Whole"}


def test_what_needs_nothing_comes_first(folder: Path) -> None:
    needs = [bool(candidate.needs) for candidate in listed(folder / "model.py").values()]
    assert needs == sorted(needs)


def test_a_name_means_the_class_of_the_same_file(folder: Path) -> None:
    (folder / "other.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): ...\n"
        "class Whole(nn.Module):\n    def __init__(self): self.net = Net()\n    def forward(self, x): ...\n"
    )
    found = listed(folder / "model.py", folder / "layers.py", folder / "other.py")
    assert "model.py:Net" in found
    assert "other.py:Net" not in found
    assert "other.py:Whole" in found


def test_files_with_relative_imports_are_named_as_modules(folder: Path) -> None:
    package = folder / "pkg"
    package.mkdir()
    (package / "net.py").write_text("from .parts import Part\ndef build_model(): return Part()\n")
    assert set(listed(package / "net.py")) == {"pkg.net:build_model"}


def test_files_beside_one_that_hides_their_package_are_named_as_modules(folder: Path) -> None:
    package = folder / "pkg" / "models"
    package.mkdir(parents=True)
    for name in ("pkg", "build"):
        (package / f"{name}.py").write_text(HEAD + net("Net"))
    assert set(listed(package / "build.py")) == {"pkg.models.build:Net"}
    (package / "pkg.py").unlink()
    assert set(listed(package / "build.py")) == {"pkg/models/build.py:Net"}


def test_entry_points_of_the_hub(folder: Path) -> None:
    (folder / "hubconf.py").write_text(
        "dependencies = ['torch']\ndef wide(pretrained=False): return load()\n"
    )
    assert set(listed(folder / "hubconf.py")) == {"hubconf.py:wide"}


def test_unreadable_files(folder: Path) -> None:
    (folder / "two.py").write_text("print 'x'\n")
    assert list_models([str(folder / "two.py")]) == ([], [str(folder / "two.py")])


def run(*arguments: str) -> in_process.Done:
    return in_process.tclint("models", *arguments)


def test_the_command(folder: Path) -> None:
    shown = run(".")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert any(line.startswith("tclint model.py:direct ") and "# function, line" in line for line in lines)
    (alone,) = [line for line in lines if "model.py:Alone" in line]
    assert "--arg NAME=VALUE" in alone
    assert "needs width, depth" in alone
    found = json.loads(run("model.py", "--format", "json").stdout)
    assert {"target", "kind", "line", "needs"} <= set(found[0])
    (folder / "pyproject.toml").write_text('[tool.tclint]\nexclude = ["model.py"]\n')
    assert "model.py:" not in run(".").stdout
    assert "model.py:direct" in run(".", "--isolated").stdout


def test_the_command_finds_nothing(folder: Path) -> None:
    (folder / "empty.py").write_text("x = 1\n")
    shown = run("empty.py")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert "no model found" in shown.stderr
    assert run("nowhere").returncode == 2


def test_a_file_that_is_only_read_is_told_how_to_be_traced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def notes(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            cli.main(["check", *arguments])
        return capsys.readouterr().err

    (folder / "one.py").write_text(
        "from torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    (folder / "plain.py").write_text("x = 1\n")
    assert "'tclint one.py:Net'" in notes("one.py")
    assert "'tclint models model.py' lists" in notes("model.py")
    (folder / "sub").mkdir()
    assert "note:" not in notes("sub")
    (folder / "sub" / "loss.py").write_text(
        "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.act, self.loss = nn.Sigmoid(), nn.BCELoss()\n\n    def forward(self, x, y):\n"
        "        return self.loss(self.act(x), y)\n"
    )
    assert "'tclint models sub' lists models" in notes("sub")
    for silent in (
        ("one.py", "--format", "json"),
        ("one.py", "--format", "github"),
        ("one.py", "--quiet"),
        ("one.py", "plain.py"),
        ("plain.py",),
    ):
        assert "note:" not in notes(*silent)


def test_a_training_module_hides_no_model(folder: Path) -> None:
    (folder / "net.py").write_text(
        "from torch import nn\n\nclass Block(nn.Module):\n    def forward(self, x): ...\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        self.block = Block()\n"
        "    def forward(self, x): ...\n"
    )
    (folder / "lit.py").write_text(
        "import lightning as L\nfrom net import Net\n\nclass Training(L.LightningModule):\n"
        "    def __init__(self):\n        self.net = Net()\n    def training_step(self, batch, i): ...\n"
    )
    found, _ = list_models(["lit.py", "net.py"])
    assert {candidate.target for candidate in found} == {"lit.py:Training", "net.py:Net"}


def test_classes_of_imported_files_tell_what_is_built_and_are_not_listed(folder: Path) -> None:
    (folder / "pyproject.toml").touch()
    (folder / "parts").mkdir()
    (folder / "parts" / "towers.py").write_text(HEAD + net("Tower"))
    (folder / "pick.py").write_text(
        "from parts.towers import Tower\n\ndef tall(depth=3):\n    return Tower(depth)\n\n"
        "def height(depth):\n    return depth\n"
    )
    assert set(listed(folder / "pick.py")) == {"pick.py:tall"}
