"""A network of 1-D convolutions on sound."""

import torch
from torch import nn


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 64, 3), nn.Conv1d(64, 64, 3), nn.Conv1d(64, 256, 1))

    def forward(self, x):
        return self.layers(x)


def main(loader, criterion, scaler):
    model = WaveNet().cuda()  # FMT001: quiet
    optimizer = torch.optim.Adam(model.parameters())
    for wave, target in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(wave.cuda()), target.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
