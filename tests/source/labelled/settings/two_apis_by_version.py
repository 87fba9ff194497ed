import torch

if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
    torch.backends.cuda.matmul.fp32_precision = "ieee"  # PRC004: quiet
else:
    torch.backends.cuda.matmul.allow_tf32 = True

try:
    torch.backends.cudnn.conv.fp32_precision = "tf32"  # PRC004: quiet
except AttributeError:
    torch.backends.cudnn.allow_tf32 = False
