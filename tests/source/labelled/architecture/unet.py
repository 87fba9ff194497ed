"""A U-Net as segmentation repositories write it, with blocks of other kinds beside it."""

import torch
from torch import nn


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        if not mid_channels:
            mid_channels = out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1),  # ARC001: flag
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),  # ARC001: quiet
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, 2, stride=2)  # ARC001: quiet
        self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        return self.conv(torch.cat([x2, self.up(x1)], dim=1))


class AttentionGate(nn.Module):
    def __init__(self, gate, skip, inner):
        super().__init__()
        self.W_g = nn.Sequential(
            nn.Conv2d(gate, inner, 1, padding=0, bias=True),  # ARC001: quiet
            nn.BatchNorm2d(inner),
        )
        self.W_x = nn.Sequential(
            nn.Conv2d(skip, inner, 1),  # ARC001: flag
            nn.BatchNorm2d(inner),
        )
        self.psi = nn.Sequential(nn.Conv2d(inner, 1, 1), nn.Sigmoid())  # ARC001: quiet

    def forward(self, g, x):
        return x * self.psi(torch.relu(self.W_g(g) + self.W_x(x)))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)  # ARC001: flag
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)  # ARC001: quiet
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels, 3, padding=1)  # ARC001: quiet
        self.norm3 = nn.GroupNorm(8, channels)

    def forward(self, x):
        out = self.conv1(x)
        out = self.norm1(out)
        out = torch.relu(out)
        y = self.conv2(out)
        out = self.norm2(y) + y
        return self.norm3(self.conv3(out)) + x


def stage(channels, norm=nn.BatchNorm2d):
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1),  # ARC001: quiet
        norm(channels),
        nn.ReLU(),
    )


def discriminator(channels, n_layers):
    layers = [nn.Conv2d(channels, 64, 4, 2, 1), nn.LeakyReLU(0.2, True)]  # ARC001: quiet
    for n in range(1, n_layers):
        layers += [
            nn.Conv2d(64 * n, 64 * (n + 1), 4, 2, 1),  # ARC001: flag
            nn.BatchNorm2d(64 * (n + 1)),
            nn.LeakyReLU(0.2, True),
        ]
    layers += [nn.Conv2d(64 * n_layers, 1, 4, 1, 1)]  # ARC001: quiet
    return nn.Sequential(*layers)
