"""Names that only speak of a scaler, and functions that keep its state, hide nothing."""

import torch
from checkpoints import load_checkpoint, save_checkpoint
from helpers import clip_and_step
from torch.amp import GradScaler


def train(model, loader, optimizer, use_scaler, path):
    scaler = GradScaler("cuda", enabled=use_scaler)
    load_checkpoint(path, model, optimizer, scaler)
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: flag
        scaler.step(optimizer)
        scaler.update()
    save_checkpoint(path, model, optimizer, scaler)


def train_with_help(model, loader, optimizer, use_scaler):
    scaler = GradScaler("cuda", enabled=use_scaler)
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        clip_and_step(model, optimizer, scaler)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
        scaler.step(optimizer)
        scaler.update()
