"""Convolutions."""

from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3)
        self.body = nn.Conv2d(64, 64, 3)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))
