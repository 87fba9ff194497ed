"""A model, and the script that trains it."""

from __future__ import annotations

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
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=8, pin_memory=True)
    for x, target in loader:
        x, target = x.cuda(non_blocking=True), target.cuda(non_blocking=True)
        optimizer.zero_grad()
        FORWARD
        loss.backward()
        optimizer.step()
"""
PLAIN = "loss = F.mse_loss(model(x), target)"
AUTOCAST = 'with torch.autocast("cuda", torch.bfloat16):\n            loss = F.mse_loss(model(x), target)'


def script(*, batch: int, forward: str = AUTOCAST, optimizer: str = "AdamW") -> str:
    """The training script, with one of the forwards above or another."""
    return SCRIPT.replace("FORWARD", forward).replace("BATCH", str(batch)).replace("AdamW", optimizer)
