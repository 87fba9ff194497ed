"""A transformer trained in float32, with its own training class."""

import math

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(width, heads, batch_first=True)
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)

    def forward(self, x, memory):
        x = x + self.attn(x, x, x)[0]  # ARC017: flag
        y, weights = self.cross(x, memory, memory)  # ARC017: quiet
        self.last_weights = weights
        z, _ = self.cross(y, memory, memory, need_weights=False)  # ARC017: quiet
        return x + self.proj(self.fc(z))


class Trainer:
    def __init__(self, model, x, y):
        self.model = model.cuda()
        self.optimizer = optim.AdamW(model.parameters())
        data = TensorDataset(x.cuda(), y.cuda())
        self.loader = DataLoader(data, batch_size=50)  # RUN007: quiet  # RUN009: quiet
        self.criterion = nn.MSELoss()

    def fit(self):
        for x, y in self.loader:
            loss = self.criterion(self.model(x, y), y)
            if not math.isfinite(loss.item()):  # RUN014: quiet
                raise RuntimeError("diverged")
            self.optimizer.zero_grad(set_to_none=False)  # RUN011: flag
            loss.backward()  # PRC001: flag  # RUN001: quiet
            self.optimizer.step()


Trainer(Block(512, 8), sources, targets).fit()
