"""Levels follow prices, from the command line: what gains less than its uncertainty fails no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import tclint

pytest.importorskip("torch")

MODEL = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, width=2048):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(self.up(x).relu())


def build_model():
    return Net()
"""
SCRIPT = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from net import Net


def main(dataset):
    model = Net().cuda()
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3)
    loader = DataLoader(dataset, batch_size={batch}, shuffle=True, num_workers=8, pin_memory=True)
    for x, target in loader:
        x, target = x.cuda(non_blocking=True), target.cuda(non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled={autocast}):
            loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
"""


def linted(
    folder: Path, *, batch: int, autocast: bool = True, optimizer: str = "AdamW"
) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by code."""
    (folder / "net.py").write_text(MODEL)
    text = SCRIPT.format(batch=batch, autocast=autocast, optimizer=optimizer)
    if not autocast:
        text = text.replace('with torch.autocast("cuda", torch.bfloat16, enabled=False):\n            ', "")
    (folder / "train.py").write_text(text)
    options = ("--gpu", "a100", "--isolated", "--format", "json")
    result = tclint("net.py:build_model", "train.py", *options, cwd=folder)
    return result.returncode, {one["code"]: one for one in json.loads(result.stdout)["findings"]}


def test_a_price_makes_a_warning_of_what_a_script_alone_only_mentions(tmp_path: Path) -> None:
    code, found = linted(tmp_path, batch=1024)
    effect = found["RUN012"]["effect"]["a100-sxm4-80gb"]
    assert effect["gain_percent"] > 10.0
    assert (found["RUN012"]["level"], code) == ("warning", 1)


def test_a_gain_within_the_uncertainty_is_information(tmp_path: Path) -> None:
    code, found = linted(tmp_path, batch=513, optimizer="SGD")
    effect = found["RUN009"]["effect"]["a100-sxm4-80gb"]
    assert effect["gain_within_error"]
    assert (found["RUN009"]["level"], code) == ("info", 0)


def test_training_in_float32_is_the_first_warning_with_its_price(tmp_path: Path) -> None:
    code, found = linted(tmp_path, batch=4096, autocast=False)
    assert list(found)[:2] == ["AMP016", "PRC001"]
    assert found["AMP016"]["location"]["path"] == "train.py"
    assert found["AMP016"]["effect"]["a100-sxm4-80gb"]["gain_percent"] > 60.0
    assert (found["AMP016"]["level"], code) == ("warning", 1)
