"""Rules that stay silent, or speak more softly, for what a file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.rules.registry import all_rules
from tclint.engine.sources.program import lint_text
from tclint.source.source_rule import SourceRule

CELLS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[1], 8)
        for t in range(x.shape[0]):
            h, c = self.cell(x[t], (h, c))
        return h


model = Net(){placed}
"""
FORGOTTEN_UPDATE = """
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    scaler.step(optimizer)
"""


def found(code: str, text: str, path: str = "train.py") -> list[Finding]:
    rules = [rule() for rule in all_rules() if issubclass(rule, SourceRule) and rule.code == code]
    return lint_text(text, rules, Settings(), path)


@pytest.mark.parametrize(
    ("placed", "count"), [(".cuda()", 1), ("", 1), (".to(torch.device('cpu'))", 0), (".double().cuda()", 0)]
)
def test_cells_on_the_cpu_and_in_float64_are_left_alone(placed: str, count: int) -> None:
    assert len(found("ARC006", CELLS.format(placed=placed))) == count


@pytest.mark.parametrize(
    ("path", "level"),
    [("src/train.py", "error"), ("tests/test_amp.py", "info"), ("lib/tests/amp.py", "info")],
)
def test_mixed_precision_in_tests_is_worth_knowing_at_most(path: str, level: str) -> None:
    assert [finding.level for finding in found("AMP004", FORGOTTEN_UPDATE, path)] == [level]


def test_a_class_of_the_project_with_the_methods_of_a_scaler_is_none(tmp_path: Path) -> None:
    (tmp_path / "dummies.py").write_text(
        "class DummyGradScaler:\n    def scale(self, loss):\n        return loss\n"
    )
    text = "from dummies import DummyGradScaler\n" + FORGOTTEN_UPDATE.replace(
        'torch.amp.GradScaler("cuda")', "DummyGradScaler()"
    )
    path = str(tmp_path / "train.py")
    assert not found("AMP004", text, path)
    (tmp_path / "dummies.py").write_text("from torch.amp import GradScaler as DummyGradScaler\n")
    assert found("AMP004", text, path)


def test_a_checkpoint_of_another_file_without_the_scaler(tmp_path: Path) -> None:
    saving = (
        "import torch\n\n\ndef save(model, optimizer, path, scaler=None):\n"
        "    state = {'model': model.state_dict(), 'optimizer': optimizer.state_dict()}\n"
        "    if scaler is not None:\n"
        "        state['scaler'] = scaler.state_dict()\n"
        "    torch.save(state, path)\n\n\n"
        "def load(model, optimizer, path):\n"
        "    optimizer.load_state_dict(torch.load(path)['optimizer'])\n"
    )
    (tmp_path / "utils.py").write_text(saving)
    text = (
        "import utils\n"
        + FORGOTTEN_UPDATE
        + "    scaler.update()\nutils.load(model, optimizer, path)\nutils.save(model, optimizer, path{})\n"
    )
    path = str(tmp_path / "train.py")
    assert [finding.location.line for finding in found("AMP018", text.format(""), path)] == [11]
    assert not found("AMP018", text.format(", scaler"), path)


def test_a_loader_whose_batches_another_file_copies(tmp_path: Path) -> None:
    engine = (
        "from tqdm import tqdm\n\ndef train_one_epoch(model, loader, optimizer, device):\n"
        "    for images, labels in tqdm(loader):\n"
        "        loss = model(images.to(device), labels.to(device))\n"
        "        loss.backward()\n"
        "        optimizer.step()\n"
    )
    (tmp_path / "engine.py").write_text(engine)
    text = (
        "from torch.utils.data import DataLoader\nfrom engine import train_one_epoch\n"
        "model.cuda()\nloader = DataLoader(dataset, batch_size=64, num_workers=8)\n"
        "train_one_epoch(model, loader, optimizer, device)\n"
    )
    path = str(tmp_path / "main.py")
    assert [finding.location.line for finding in found("RUN007", text, path)] == [4]
    (tmp_path / "engine.py").write_text(engine.replace("tqdm(loader)", "others"))
    assert not found("RUN007", text, path)
