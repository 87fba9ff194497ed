import torch


def start(device):
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = False  # PRC002: flag
        torch.backends.cudnn.benchmark = False  # RUN002: flag
    return device


def parity_check(model, reference, x):
    torch.backends.cudnn.allow_tf32 = False  # PRC002: quiet
    difference = (model(x) - reference(x)).abs().max()
    torch.backends.cudnn.allow_tf32 = True
    return difference
