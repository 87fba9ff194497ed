"""Widths of gated feed-forward layers: rounded or not, given by default or handed on."""

import math

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width, inner=None):
        super().__init__()
        inner = inner or int(8 * width / 3)  # DIM014: flag
        self.up = nn.Linear(width, 2 * inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        a, b = self.up(x).chunk(2, dim=-1)
        return self.down(torch.nn.functional.silu(a) * b)


class RoundedGate(nn.Module):
    def __init__(self, width, inner=None):
        super().__init__()
        inner = inner or int(8 * width / 3)  # DIM014: quiet
        inner = 128 * math.ceil(inner / 128)
        self.up = nn.Linear(width, 2 * inner)
        self.down = nn.Linear(inner, width)


class ImageGate(nn.Module):
    def __init__(self, channels, factor=4):
        super().__init__()
        inner = int(channels * factor * 2 / 3)  # DIM014: flag
        self.up = nn.Conv2d(channels, inner * 2, 1)
        self.down = nn.Conv2d(inner, channels, 1)


class Given(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.first = nn.Linear(width, inner, bias=False)
        self.second = nn.Linear(inner, width, bias=False)


class Block(nn.Module):
    def __init__(self, width, gated):
        super().__init__()
        if gated:
            inner = int(width * 8 / 3)  # DIM014: flag
            self.mlp = Given(width, inner)
        else:
            inner = int(4 * width)
            self.mlp = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.other = Given(width, int(2 * width / 3))  # DIM014: flag
        self.third = Gate(width, int(width / 3 * 8))  # DIM014: quiet
