"""The engine scales."""

import torch

scaler = torch.amp.GradScaler("cuda")


def finish(loss, optimizer):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
