"""Scripts whose settings Hydra puts together."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import probed_in

from tclint.config.settings import Settings
from tclint.engine.check import check

SCRIPT = """\
import hydra
import torch

@hydra.main(version_base=None, config_path="conf", config_name="fit")
def main(cfg):
    probe(cfg.{name})
    torch.nn.Linear(8, 8)(torch.ones(8, 8)).sum().backward()

if __name__ == "__main__":
    main()
"""
FILES = {
    "fit.yaml": (
        "defaults:\n  - base\n  - net: small\n  - optional local: mine\n  - data@extra.data: images\n"
        "  - task: null\n  - override hydra/job_logging: none\n  - _self_\nsteps: 5\n"
        "width: ${net.width}\nhome: ${oc.env:HOME}\n"
    ),
    "base.yaml": "steps: 1\nseed: 7\n",
    "net/small.yaml": "defaults:\n  - common\n  - act: relu\nwidth: 64\n",
    "net/large.yaml": "width: 4096\n",
    "net/common.yaml": "width: 1\ndepth: 2\n",
    "net/act/relu.yaml": "kind: relu\n",
    "data/images.yaml": "size: ${width}\n",
    "task/long.yaml": "# @package _global_\ndefaults:\n  - override /net: large\nsteps: 100\n",
}


@pytest.mark.parametrize(
    ("name", "shell", "expected"),
    [
        pytest.param("steps", "", "5", id="the file itself wins"),
        pytest.param("seed", "", "7", id="another file"),
        pytest.param("net.width", "", "64", id="of a group"),
        pytest.param("net.depth", "", "2", id="a file beside it"),
        pytest.param("net.act.kind", "", "'relu'", id="a group in a group"),
        pytest.param("extra.data.size", "", "64", id="a package, and a name of a name"),
        pytest.param("home", "", "?", id="the environment"),
        pytest.param("net.width", "python fit.py net=large", "4096", id="a group of the command line"),
        pytest.param("steps", "python fit.py steps=9 +new=1", "9", id="a value of the command line"),
        pytest.param("steps", "python fit.py steps=9\npython fit.py steps=8", "?", id="several"),
        pytest.param("steps", "python fit.py -m steps=8,9", "?", id="a sweep"),
        pytest.param("net.width", "python fit.py net=none", "?", id="a group that is not there"),
        pytest.param("net.width", "python fit.py task=long", "4096", id="a file that overrides a group"),
        pytest.param("seed", "./fit.py -m task=a,b", "?", id="a file that may override all"),
        pytest.param("seed", "./fit.py -m net=a,b", "7", id="a file that may not"),
    ],
)
def test_files_are_put_together(tmp_path: Path, name: str, shell: str, expected: str) -> None:
    for path, text in FILES.items():
        (tmp_path / "conf" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "conf" / path).write_text(text)
    (tmp_path / "go.sh").write_text(f"{shell}\n")
    assert probed_in(tmp_path, "fit.py", SCRIPT.format(name=name)) == [expected]


def test_without_self_both_values_are_possible(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "fit.yaml").write_text("defaults:\n  - base\nsteps: 5\nlr: 1\n")
    (tmp_path / "conf" / "base.yaml").write_text("steps: 1\n")
    assert probed_in(tmp_path, "fit.py", SCRIPT.format(name="steps")) == ["?"]
    assert probed_in(tmp_path, "fit.py", SCRIPT.format(name="lr")) == ["1"]


def test_targets_are_made(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "class Net:\n    def __init__(self, width, act):\n        self.width = width\n"
    )
    (tmp_path / "conf.yaml").write_text(
        "net:\n  _target_: nets.Net\n  width: 64\n  act: {_target_: torch.nn.ReLU}\n"
    )
    text = """\
import hydra
from omegaconf import OmegaConf

config = OmegaConf.load("conf.yaml")
net = hydra.utils.instantiate(config.net, width=32)
probe(net.width)
"""
    assert probed_in(tmp_path, "fit.py", text) == ["32"]


NETS = """\
import lightning
import torch
from torch import nn

class Net(lightning.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def training_step(self, batch, index):
        return (self.layers(batch[0]) - batch[1]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), fused=True)
"""
LIGHTNING = """\
import hydra
import torch

@hydra.main(version_base=None, config_path="conf", config_name="fit")
def main(cfg):
    net = hydra.utils.instantiate(cfg.net)
    trainer = hydra.utils.instantiate(cfg.trainer)
    trainer.fit(net, torch.utils.data.DataLoader([]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ("accelerator: gpu\n", [7]),
        ("accelerator: cpu\n", []),
        ("accelerator: gpu\nprecision: bf16-mixed\n", []),
    ],
)
def test_findings_on_what_hydra_makes(tmp_path: Path, trainer: str, expected: list[int]) -> None:
    files = {
        "pyproject.toml": "",
        "fit.py": LIGHTNING,
        "nets.py": NETS,
        "conf/fit.yaml": "defaults:\n  - trainer: own\n  - _self_\nnet: {_target_: nets.Net, width: 2048}\n",
        "conf/trainer/own.yaml": f"_target_: lightning.Trainer\ndevices: 1\n{trainer}",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    report = check(str(tmp_path / "fit.py"), Settings(cache=False, select=("AMP016",)))
    assert [item.location.line for item in report.findings] == expected
