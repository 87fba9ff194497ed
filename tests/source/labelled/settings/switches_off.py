"""Switches that always run."""

import torch
from torch.backends import cudnn

torch.backends.cuda.matmul.allow_tf32 = False  # PRC002: flag
cudnn.allow_tf32 = False  # PRC002: flag
cudnn.enabled = False  # RUN004: flag
torch.autograd.set_detect_anomaly(True)  # RUN005: flag


def main():
    torch.set_float32_matmul_precision("High")  # PRC005: flag
    torch.backends.fp32_precision = "fp32"  # PRC005: flag
    torch.backends.cudnn.rnn.fp32_precision = "bf16"  # PRC005: flag
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # PRC005: quiet
