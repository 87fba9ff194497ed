"""Frameworks scale, clip and step themselves."""

import torch
from accelerate import Accelerator


def accelerated(model, loader, optimizer):
    accelerator = Accelerator(mixed_precision="fp16")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model), accelerator.autocast():
            loss = model(batch)
        accelerator.backward(loss)  # AMP001: quiet  AMP013: quiet
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
        optimizer.step()  # AMP005: quiet


def with_its_scaler(model, loader, optimizer, accelerator):
    scaler = accelerator.scaler
    for batch in loader:
        scaler.scale(model(batch)).backward()
        optimizer.step()  # AMP005: quiet
        torch.cuda.synchronize()
