"""Accelerate wraps model, optimizer and backward."""

import torch
from accelerate import Accelerator


def main(model, optimizer, loader, vae):
    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            with torch.autocast("cuda"):
                loss = model(vae(batch)).mean()
                accelerator.backward(loss)  # AMP001: quiet  AMP006: quiet
            optimizer.step()
            optimizer.zero_grad()
