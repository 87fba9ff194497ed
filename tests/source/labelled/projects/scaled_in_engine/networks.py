"""A network that enters autocast itself, in a project whose engine scales losses."""

import torch
from torch import nn


class Always(nn.Module):
    @torch.cuda.amp.autocast()
    def forward(self, x):
        return self.body(x)
