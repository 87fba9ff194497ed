"""What a script trains is named, for people as the command that prices its findings, in JSON as data."""

from __future__ import annotations

import json
from pathlib import Path

from in_process import tclint

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 64)

    def forward(self, x):
        return self.head(x)
"""
SCRIPT = """\
import torch
import torch.nn.functional as F
from net import Net

loader = torch.utils.data.DataLoader(dataset, batch_size=64)
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(net(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""


def test_the_model_of_a_script_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(SCRIPT)
    saved = ("--output", "json=r.json", "--output", "jsonl=r.jsonl")
    done = tclint("train.py", "--isolated", *saved, cwd=tmp_path)
    assert "'tclint train.py net.py:Net'" in done.stderr
    document = json.loads((tmp_path / "r.json").read_text())
    expected = [{"script": "train.py", "targets": ["net.py:Net"]}]
    assert document["models_trained"] == expected
    # Every form of a saved report keeps it, and those of versions that did not know it are read.
    for name in ("r.json", "r.jsonl"):
        again = tclint("report", name, "--format", "json", cwd=tmp_path)
        assert json.loads(again.stdout)["models_trained"] == expected
    del document["models_trained"]
    (tmp_path / "r.json").write_text(json.dumps(document))
    again = tclint("report", "r.json", "--format", "json", cwd=tmp_path)
    assert json.loads(again.stdout)["models_trained"] == []
