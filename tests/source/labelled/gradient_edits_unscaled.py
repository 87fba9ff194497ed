"""Gradients divided by the loss scale by hand before they are clipped."""

import torch

scaler = torch.amp.GradScaler("cuda")


def by_the_scale(model, batch, optimizer, loss_scale):
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad.data.div_(loss_scale)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
    optimizer.step()  # AMP005: quiet


def by_a_method_of_who_has_the_scaler(trainer, model, batch, optimizer):
    with torch.autocast("cuda"):
        loss = model(batch)
    scaler = trainer.scaler
    scaler.scale(loss).backward()
    trainer.unscale_gradients()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
    scaler.step(optimizer)
    scaler.update()
