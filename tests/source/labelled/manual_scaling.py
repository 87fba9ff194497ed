"""Loss scaling by hand, the way of the time before GradScaler."""

import torch

SCALE = 1024.0


def train(model, batch, optimizer):
    with torch.cuda.amp.autocast():
        loss = model(batch)
    (loss * SCALE).backward()  # AMP001: quiet  AMP006: quiet
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] / SCALE
    optimizer.step()


def train_in_place(model, batch, optimizer, factor):
    with torch.cuda.amp.autocast():
        loss = model(batch)
    loss *= factor
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def train_by_call(model, batch, optimizer):
    with torch.cuda.amp.autocast():
        loss = model(batch)
    loss.mul(2**12).backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def weighted(model, batch, optimizer, kl_weight):
    with torch.cuda.amp.autocast():
        reconstruction, kl = model(batch)
    loss = reconstruction + 0.5 * kl_weight * kl
    loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()
