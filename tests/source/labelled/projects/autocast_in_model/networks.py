"""Networks that enter autocast themselves: always, by a setting, or for a part of the forward."""

import torch
from torch import nn


class Always(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Linear(width, width)

    @torch.cuda.amp.autocast()
    def forward(self, x):
        return self.body(x)


class Inside(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Linear(width, width)

    def forward(self, x):
        with torch.autocast("cuda"):
            return self.body(x)


class Chosen(nn.Module):
    def __init__(self, width, mixed):
        super().__init__()
        self.mixed = mixed
        self.body = nn.Linear(width, width)

    def forward(self, x):
        with torch.autocast("cuda", enabled=self.mixed):
            return self.body(x)


class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Linear(width, width)

    @torch.autocast("cuda", dtype=torch.bfloat16)
    def forward(self, x):
        return self.body(x)
