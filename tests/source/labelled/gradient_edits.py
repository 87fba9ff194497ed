"""Gradients edited by hand between the scaled backward pass and the step."""

import torch

scaler = torch.amp.GradScaler("cuda")


def clamped(model, batch, optimizer):
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad.clamp_(-1, 1)  # AMP003: flag
    scaler.step(optimizer)
    scaler.update()


def noisy(model, batch, optimizer, sigma):
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad.add_(torch.randn_like(parameter.grad) * sigma)  # AMP003: flag
    scaler.step(optimizer)
    scaler.update()


def decayed(model, batch, optimizer, weight_decay):
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad += weight_decay * parameter  # AMP003: flag
    scaler.step(optimizer)
    scaler.update()


def summed(model, batch, optimizer, kept):
    """Gradients of another pass carry the same scale."""
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad += kept[parameter].grad  # AMP003: quiet
    scaler.step(optimizer)
    scaler.update()


def center_loss(model, centers, batch, optimizer, optimizer_center, center_weight):
    """Multiplying by the weight of a loss is no unscaling."""
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: flag
    scaler.step(optimizer)
    for parameter in centers.parameters():
        parameter.grad.data *= 1.0 / center_weight
    scaler.step(optimizer_center)
    scaler.update()
