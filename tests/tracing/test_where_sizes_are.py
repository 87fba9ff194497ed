"""Sizes of inputs from where they are: what the model was built with, the README's call, a script's crops."""

from __future__ import annotations

import argparse
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tclint.tracing.inputs.given import CallInputs
from tclint.tracing.inputs.guesses.example_calls import ModelFiles
from tclint.tracing.inputs.guesses.inference import infer_inputs
from tclint.tracing.values.layers import remember_builder

Sizes = namedtuple("Sizes", ["width", "image_size"])


class Keys:
    """A configuration with keys that is no Mapping."""

    def __init__(self, **items: Any) -> None:
        self._fields = items

    def keys(self) -> Any:
        return self._fields.keys()

    def __iter__(self) -> Any:
        return iter(self._fields)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stem(x)


def _inferred(folder: Path, model: nn.Module | None = None) -> CallInputs:
    (folder / "net.py").touch()
    origin = ModelFiles((str(folder / "net.py"),), frozenset({"Net"}))
    return infer_inputs(Net() if model is None else model, origin)


@pytest.mark.parametrize(
    "built_with",
    [
        {"image_size": 64},
        {"options": argparse.Namespace(width=1, resolution=64)},
        {"config": {"dataset": {"image_size": [64, 64]}, "lr": 0.1}},
        {"sizes": Sizes(3, 64)},
        {"keys": Keys(data=Keys(image_size=64))},
    ],
    ids=lambda built_with: next(iter(built_with)),
)
def test_what_the_builder_got_states_the_size(tmp_path: Path, built_with: dict[str, Any]) -> None:
    (tmp_path / "README.md").write_text(
        "```python\nNet()(torch.randn(1, 3, 96, 96))\n```\n", encoding="utf-8"
    )
    model = Net()
    remember_builder(model, built_with)
    inputs = _inferred(tmp_path, model)
    assert inputs.args[0].shape == (8, 3, 64, 64)


def test_a_readme_calls_the_model_with_its_inputs(tmp_path: Path) -> None:
    text = (
        "# Net\n\n```python\nfrom net import Net\nnet = Net()\nx = torch.randn(1, 3, 96, 160)\nnet(x)\n```\n"
    )
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    inputs = _inferred(tmp_path)
    assert (inputs.args[0].shape, inputs.basis) == ((8, 3, 96, 160), "stated")
    (assumption,) = inputs.assumptions
    assert "as the README calls it" in assumption.what
    assert assumption.site is not None
    assert assumption.site.line == 7


@pytest.mark.parametrize(
    ("transforms", "side"),
    [
        ("Compose([RandomCrop(32, padding=4), ToTensor()])", 32),
        ("parser.add_argument('--size', default=48)\nRandomResizedCrop(size=opt.size)", 48),
        ("Compose([Resize(256), CenterCrop(192)])", 192),
        ("SIDE = 96\nRandomCrop(SIDE)", 96),
        ("config = {'side': 80, 'batch': 4}\nRandomCrop(config['side'])", 80),
        ("cfg = Config(high=72)\nRandomCrop((cfg.high, cfg.high))", 72),
        ("SIDE = 96\nif small:\n    SIDE = 48\nRandomCrop(SIDE)", 224),
        ("RandomCrop(32)\nRandomCrop(64)", 224),
    ],
)
def test_crops_of_the_script_that_trains_state_the_size(tmp_path: Path, transforms: str, side: int) -> None:
    (tmp_path / "train.py").write_text(f"from net import Net\n{transforms}\n", encoding="utf-8")
    assert _inferred(tmp_path).args[0].shape == (8, 3, side, side)
