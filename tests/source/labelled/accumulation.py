"""Gradient accumulation over micro-batches, losses gathered in a list and a dict."""

import torch
from torch.cuda import amp


def train(model, loader, optimizer, criterion, steps, args):
    for index, (x, y) in enumerate(loader):
        with amp.autocast(enabled=args.amp):
            loss = criterion(model(x), y)
        (loss / steps).backward()  # AMP001: flag  AMP006: quiet
        if (index + 1) % steps == 0:
            optimizer.step()
            optimizer.zero_grad()


def train_gathered(model, views, optimizer):
    losses = []
    terms = {}
    for view in views:
        with torch.autocast(device_type="cuda", dtype=torch.half):
            losses.append(model(view))
            terms["reg"] = model.regularizer()
    total = sum(losses) / len(losses) + 0.1 * terms["reg"]
    total.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()
