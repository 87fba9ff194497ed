"""What the training script imports."""

from dataclasses import dataclass

import torch

DTYPE = torch.float16
SAFE = torch.bfloat16


@dataclass
class Config:
    dtype: torch.dtype = torch.float16
