"""Tied heads whose vocabulary stands in a configuration."""

from dataclasses import dataclass

from torch import nn


@dataclass
class SmallConfig:
    words: int = 50257
    width: int = 512


class Options:
    def __init__(self, vocabulary=32003, width=256):
        self.vocabulary = vocabulary
        self.width = width


class Small(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.parts = nn.ModuleDict(
            {"table": nn.Embedding(config.words, config.width), "norm": nn.LayerNorm(config.width)}
        )
        self.head = nn.Linear(config.width, config.words, bias=False)
        self.parts.table.weight = self.head.weight  # DIM003: flag


class Large(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options
        self.table = nn.Embedding(self.options.vocabulary, self.options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)
        shared = self.table.weight
        self.head.weight = shared  # DIM003: flag


class Given(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.table = nn.Embedding(tokens, width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.table.weight  # DIM003: quiet


def build(text):
    return Small(SmallConfig()), Large(Options()), Given(len(set(text)), 64)
