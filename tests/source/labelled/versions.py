"""Tests on a GPU, tests on the version of torch, and tests that only look like them."""

import torch
from compat import TORCH_AT_LEAST_2_4, is_new_enough
from torch.cuda.amp import autocast

scaler = None
if torch.cuda.is_available():
    scaler = torch.cuda.amp.GradScaler()  # AMP014: flag

chosen = torch.amp.GradScaler("cuda") if TORCH_AT_LEAST_2_4 else torch.cuda.amp.GradScaler()  # AMP014: quiet

if is_new_enough():
    Scaler = torch.GradScaler
else:
    Scaler = torch.cuda.amp.GradScaler  # AMP014: quiet


def forward(model, batch, args):
    if args.fp16:
        with autocast():  # AMP014: flag
            return model(batch)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(batch)


def forward_through_an_alias(model, batch):
    amp = torch.cuda.amp
    with amp.autocast():  # AMP014: flag
        return model(batch)
