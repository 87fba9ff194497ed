"""Gradients in evaluation mode are the point."""

import torch


def attack(model, loader, steps):
    model.eval()
    for images, labels in loader:
        images.requires_grad_(True)
        for _ in range(steps):
            loss = criterion(model(images), labels)  # RUN016: quiet
            (gradient,) = torch.autograd.grad(loss, images)
            images = images + 0.01 * gradient.sign()


attack(model, loader, 10)
