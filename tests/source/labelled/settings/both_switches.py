import torch
from torch.backends import cudnn


def seed_all(seed):
    torch.manual_seed(seed)
    cudnn.deterministic = True
    cudnn.benchmark = True  # RUN003: flag


def other(fast):
    if fast:
        cudnn.benchmark = True  # RUN003: quiet
    else:
        cudnn.deterministic = True
