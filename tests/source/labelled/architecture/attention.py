"""Attention written out in several ways."""

import math

import torch
import torch.nn.functional as F
from torch import einsum, nn


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.key = nn.Linear(n_embd, n_embd)
        self.query = nn.Linear(n_embd, n_embd)
        self.value = nn.Linear(n_embd, n_embd)
        self.attn_drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(block_size, block_size))[None, None])
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.size()
        k = self.key(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = self.query(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = self.value(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)  # ARC005: flag
        att = self.attn_drop(att)
        y = att @ v
        return y.transpose(1, 2).contiguous().view(B, T, C)


class VisionAttention(nn.Module):
    def __init__(self, dim, heads=8, dim_head=64):
        super().__init__()
        self.heads = heads
        self.scale = dim_head**-0.5
        self.attend = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(0.0)
        self.to_qkv = nn.Linear(dim, heads * dim_head * 3, bias=False)

    def forward(self, x):
        q, k, v = self.to_qkv(x).view(len(x), -1, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        attn = self.attend(dots)  # ARC005: flag
        attn = self.dropout(attn)
        return torch.matmul(attn, v)


def cross_attention(q, k, v, heads, scale):
    sim = einsum("b i d, b j d -> b i j", q, k) * scale
    attn = sim.softmax(dim=-1)  # ARC005: flag
    return einsum("b i j, b j d -> b i d", attn, v)


class Folded(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, q, k, v, attn_mask=None):
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.size(-1))
        if attn_mask is not None:
            scores += attn_mask
        return torch.bmm(torch.softmax(scores, dim=2), v)  # ARC005: flag


class Looked(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.mix = nn.Linear(heads, heads)

    def returned(self, q, k, v):
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # ARC005: quiet
        return attn @ v, attn

    def kept(self, q, k, v):
        self.attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # ARC005: quiet
        return self.attn @ v

    def channels(self, q, k, v):
        attn = (q @ k.transpose(-2, -1)) * self.temperature
        attn = attn.softmax(dim=-1)  # ARC005: quiet
        return attn @ v

    def sharpened_by_head(self, q, k, v):
        attn = torch.einsum("b h i n, b h j n -> b h i j", q, k) * self.temperature.exp()
        return torch.einsum("b h i j, b h j n -> b h i n", attn.softmax(dim=-1), v)  # ARC005: quiet

    def mixed(self, q, k, v):
        attn = self.mix((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return attn.softmax(dim=-1) @ v  # ARC005: quiet

    def relative(self, q, k, v):
        attn = q @ k.transpose(-2, -1) + self.mix.weight
        return attn.softmax(dim=-1) @ v  # ARC005: quiet

    def sharpened(self, q, k, v):
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # ARC005: quiet
        attn = attn / attn.sum(-1, keepdim=True)
        return attn @ v


class AfterStart(nn.Module):
    """Attention to an image of which one token is the start."""

    def __init__(self, width):
        super().__init__()
        self.start = nn.Embedding(2, width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)

    def forward(self, x, kind):
        start = self.start(kind).unsqueeze(1)
        joined = torch.cat([start, x], dim=1)
        weights = (self.query(joined) @ self.key(joined).transpose(-2, -1)).softmax(dim=-1)  # ARC005: flag
        return weights @ joined

    def sum_up(self, x, kind):
        start = self.start(kind).unsqueeze(1)
        weights = (self.query(start) @ self.key(x).transpose(-2, -1)).softmax(dim=-1)  # ARC005: quiet
        return weights @ x
