"""The scaled and the plain way as two sides of one expression."""

import torch
from torch.amp import GradScaler

use_amp = parse_arguments().amp
scaler = GradScaler("cuda") if use_amp else None

for batch in loader:
    with torch.autocast("cuda", enabled=use_amp):
        loss = model(batch)
    optimizer.zero_grad()
    scaler.scale(loss).backward() if use_amp else loss.backward()  # AMP001: quiet  AMP013: quiet
    scaler.step(optimizer) if use_amp else optimizer.step()  # AMP005: quiet  AMP004: quiet
    if use_amp:
        scaler.update()


def clipped(model, loader, optimizer):
    for batch in loader:
        with torch.autocast("cuda", enabled=use_amp):
            loss = model(batch)
        optimizer.zero_grad()
        scaler.scale(loss).backward() if use_amp else loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # AMP003: flag
        scaler.step(optimizer) if use_amp else optimizer.step()
        scaler.update() if use_amp else None
