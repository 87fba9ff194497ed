"""Set abstraction as in networks on point clouds, and networks on tables: layers in lists."""

import torch.nn.functional as F
from torch import nn


class SetAbstraction(nn.Module):
    def __init__(self, in_channel, mlp):
        super().__init__()
        self.mlp_convs = nn.ModuleList()
        self.mlp_bns = nn.ModuleList()
        last_channel = in_channel
        for out_channel in mlp:
            self.mlp_convs.append(nn.Conv2d(last_channel, out_channel, 1))  # ARC001: flag
            self.mlp_bns.append(nn.BatchNorm2d(out_channel))
            last_channel = out_channel

    def forward(self, points):
        for i, conv in enumerate(self.mlp_convs):
            bn = self.mlp_bns[i]
            points = F.relu(bn(conv(points)))
        return points.max(2)[0]


class MultiScale(nn.Module):
    def __init__(self, in_channel, mlp_list):
        super().__init__()
        self.conv_blocks = nn.ModuleList()
        self.bn_blocks = nn.ModuleList()
        for mlp in mlp_list:
            convs = nn.ModuleList()
            bns = nn.ModuleList()
            last_channel = in_channel + 3
            for out_channel in mlp:
                convs.append(nn.Conv2d(last_channel, out_channel, 1))  # ARC001: flag
                bns.append(nn.BatchNorm2d(out_channel))
                last_channel = out_channel
            self.conv_blocks.append(convs)
            self.bn_blocks.append(bns)

    def forward(self, grouped):
        for i in range(len(self.conv_blocks)):
            for j in range(len(self.conv_blocks[i])):
                conv = self.conv_blocks[i][j]
                bn = self.bn_blocks[i][j]
                grouped = conv(grouped)
                grouped = bn(grouped)
                grouped = F.relu(grouped)
        return grouped


class LastWithout(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(a, b, 1) for a, b in zip(widths, widths[1:])])  # ARC001: quiet
        self.norms = nn.ModuleList([nn.BatchNorm1d(b) for b in widths[1:]])

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            x = conv(x)
            if i < len(self.convs) - 1:
                x = F.relu(self.norms[i](x))
        return x


class Tabular(nn.Module):
    def __init__(self, n_features, hidden, classes):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_features, hidden),  # ARC001: flag
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),  # ARC001: quiet
            nn.ReLU(),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, classes),  # ARC001: quiet
        )

    def forward(self, x):
        return self.net(x)


class OverTokens(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.mix = nn.Linear(width, width)  # ARC001: quiet
        self.norm = nn.BatchNorm1d(tokens)

    def forward(self, x):
        return self.norm(self.mix(x))
