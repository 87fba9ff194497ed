"""A tutorial's loop: autocast taken over, the scaler forgotten."""

import torch
from torch import nn


def train(model: nn.Module, loader, optimizer, criterion, device, epochs):
    model.train()
    for _ in range(epochs):
        for images, labels in loader:
            images = images.to(device, non_blocking=True)  # noqa: PLW2901
            labels = labels.to(device, non_blocking=True)  # noqa: PLW2901
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.amp.autocast():
                outputs = model(images)
                loss = criterion(outputs, labels)
            loss.backward()  # AMP001: flag  AMP006: quiet
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    total = 0.0
    for images, labels in loader:
        with torch.cuda.amp.autocast():
            total += criterion(model(images), labels).item()
    return total / len(loader)
