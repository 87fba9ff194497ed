"""Autocast inside of the model's forward: the loss outside still flows back through it."""

import torch
from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 512)

    @torch.autocast("cuda")
    def forward(self, x):
        return self.layer(x)


class Careful(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 512)

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.layer(x)


def train(loader, criterion):
    network = torch.compile(Network().cuda())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for x, y in loader:
        loss = criterion(network(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()  # AMP001: flag
        optimizer.step()


def train_carefully(loader, criterion):
    network = Careful().cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for x, y in loader:
        loss = criterion(network(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()  # AMP001: quiet
        optimizer.step()


def train_sharpness_aware(model, loader, optimizer, criterion):
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(x), y)
        loss.backward()  # AMP001: flag
        optimizer.first_step(zero_grad=True)
        with torch.autocast("cuda"):
            loss = criterion(model(x), y)
        loss.backward()  # AMP001: flag
        optimizer.second_step(zero_grad=True)
