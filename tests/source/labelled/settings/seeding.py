"""Determinism in a seeding function, and the benchmark switched on around it."""

import random

import torch
from torch.backends import cudnn


def seed_all(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    cudnn.deterministic = True
    cudnn.benchmark = False


def benchmark_then_seed(seed):
    cudnn.benchmark = True  # RUN003: quiet
    seed_all(seed)


def seed_then_benchmark(seed):
    seed_all(seed)
    cudnn.benchmark = True  # RUN003: flag


benchmark_then_seed(0)
seed_then_benchmark(0)
