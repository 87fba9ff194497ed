"""Grouped convolutions of several networks."""

import torch.nn as nn

CARDINALITY = 32
WIDTH = 256


class ResNeXtBlock(nn.Module):
    def __init__(self, planes, base_width=4):
        super().__init__()
        width = int(planes * (base_width / 64.0)) * CARDINALITY
        self.conv2 = nn.Conv2d(width, width, 3, groups=CARDINALITY, bias=False)  # ARC003: quiet
        self.conv3 = nn.Conv2d(WIDTH, WIDTH, 3, groups=CARDINALITY, bias=False)  # ARC003: quiet
        self.odd = nn.Conv2d(WIDTH, 2 * WIDTH, 3, groups=CARDINALITY, bias=False)  # ARC003: flag


class ShuffleUnit(nn.Module):
    def __init__(self, groups=3):
        super().__init__()
        self.compress = nn.Conv2d(240, 60, 1, groups=3)  # ARC003: flag
        self.depthwise = nn.Conv2d(60, 60, 3, groups=60)  # ARC003: quiet
        self.expand = nn.Conv2d(60, 240, 1, groups=groups)  # ARC003: quiet


def alexnet():
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, 4),
        nn.Conv2d(96, 256, 5, 1, 2, groups=2),  # ARC003: flag
        nn.Conv2d(256, 384, 3, 1, 1),
        nn.Conv2d(384, 384, 3, 1, 1, groups=2),  # ARC003: flag
        nn.Conv2d(384, 256, 3, 1, 1, groups=8),  # ARC003: flag
        nn.Conv2d(128, 128, 3, 1, 1, groups=2),  # ARC003: quiet
        nn.Conv1d(12, 24, 3, groups=4),  # ARC003: quiet
    )
