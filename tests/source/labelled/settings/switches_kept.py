"""Switches that somebody has a reason for."""

import contextlib
import os

import torch


def set_deterministic(seed):
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # RUN002: quiet  # RUN003: quiet
    torch.backends.cuda.matmul.allow_tf32 = False  # PRC002: quiet


@contextlib.contextmanager
def exact_products():
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False  # PRC002: quiet
    yield
    torch.backends.cudnn.allow_tf32 = before


def configure(options):
    allow_tf32 = False  # PRC002: quiet
    if options.slow:
        torch.set_float32_matmul_precision("highest")  # PRC002: quiet
        torch.backends.cudnn.enabled = False  # RUN004: quiet
    torch.set_float32_matmul_precision(options.precision)  # PRC005: quiet
    torch.autograd.set_detect_anomaly(os.environ.get("DEBUG") == "1")  # RUN005: quiet
    if options.debug:
        torch.autograd.set_detect_anomaly(True)  # RUN005: quiet
    return allow_tf32


def start(device):
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = False  # PRC002: quiet
    return device
