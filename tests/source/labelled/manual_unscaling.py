"""The factor is in the loss function; gradients are divided before the step."""

import torch


def train(model, batch, optimizer, objective, factor):
    with torch.cuda.amp.autocast():
        loss = objective(model(batch), factor)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    for parameter in model.parameters():
        parameter.grad.div_(factor)
    optimizer.step()
