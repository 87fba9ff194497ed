"""The documented way, with a branch for runs without mixed precision."""

import torch
from torch.cuda.amp import GradScaler, autocast


def train(model, loader, optimizer, criterion, use_amp):
    scaler = GradScaler(enabled=use_amp)
    for images, labels in loader:
        optimizer.zero_grad()
        if use_amp:
            with autocast():
                loss = criterion(model(images), labels)
            scaler.scale(loss).backward()  # AMP001: quiet  AMP006: quiet
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss = criterion(model(images), labels)
            loss.backward()  # AMP001: quiet  AMP006: quiet
            optimizer.step()
