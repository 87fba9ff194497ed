import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3)

    def forward(self, x):
        x.contiguous(memory_format=torch.channels_last)  # FMT002: flag
        return self.stem(x)


def convert(module):
    module.to(memory_format=torch.preserve_format)  # FMT002: quiet
    return module
