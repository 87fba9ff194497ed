"""One of bfloat16 and the scaler, as the GPU has it; a norm that is measured only."""

import torch

USE_BF16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
USE_AMP = torch.cuda.is_available() and not USE_BF16


def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda", enabled=USE_AMP)
    for batch in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=USE_BF16):
            loss = model(batch)
        if USE_AMP:
            scaler.scale(loss).backward()  # AMP008: quiet
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()


def measures(model, loader, optimizer, limit):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        if limit > 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))  # AMP003: quiet
        scaler.step(optimizer)
        scaler.update()


def clips(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: flag
        scaler.step(optimizer)
        scaler.update()
