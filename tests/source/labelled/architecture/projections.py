"""Layers that read one tensor: small and large, and some that have a reason to be apart."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 192


class SelfAttention(nn.Module):
    def __init__(self, dim=256, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim, bias=False)  # ARC004: flag
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q = self.to_q(x)
        k = self.to_k(x)
        v = self.to_v(x)
        return F.scaled_dot_product_attention(q, k, v)


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)  # ARC004: quiet
        self.key = nn.Linear(WIDTH, WIDTH)  # ARC004: flag
        self.value = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, context):
        return F.scaled_dot_product_attention(self.query(x), self.key(context), self.value(context))


class SwiGLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(128, 512, bias=False)  # ARC004: flag
        self.w2 = nn.Linear(512, 128, bias=False)
        self.w3 = nn.Linear(128, 512, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(4096, 14336, bias=False)  # ARC004: quiet
        self.w3 = nn.Linear(4096, 14336, bias=False)

    def forward(self, x):
        return F.silu(self.w1(x)) * self.w3(x)


class Sized(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.q = nn.Linear(config.width, config.width)  # ARC004: quiet
        self.k = nn.Linear(config.width, config.width)

    def forward(self, x):
        return self.q(x) @ self.k(x).transpose(1, 2)


class Gate(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.reset = nn.Linear(features, 128)  # ARC004: flag
        self.update = nn.Linear(features, 128)

    def forward(self, x, h):
        r, z = torch.sigmoid(self.reset(x)), torch.sigmoid(self.update(x))
        return z * h + (1 - z) * torch.tanh(r * h)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(400, 20)  # ARC004: quiet
        self.logvar = nn.Linear(400, 20)

    def forward(self, h):
        return self.mean(h), self.logvar(h)


gate = Gate(128)
