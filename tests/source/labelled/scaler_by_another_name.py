"""Scalers whose names do not say what they are."""

import torch
from torch.amp import GradScaler

gs = GradScaler("cuda")


def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(x, y)
        gs.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: flag
        gs.step(optimizer)
        gs.update()


def finetune(model, loader, optimizer):
    g = GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(x, y)
        g.scale(loss).backward()
        optimizer.step()  # AMP005: flag
