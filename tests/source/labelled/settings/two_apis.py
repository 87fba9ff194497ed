import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True


def exact():
    torch.backends.cuda.matmul.fp32_precision = "ieee"  # PRC004: flag
    torch.backends.cudnn.conv.fp32_precision = "tf32"  # PRC004: quiet


def again(precision):
    torch.backends.cuda.matmul.fp32_precision = precision  # PRC004: quiet  # PRC005: quiet
