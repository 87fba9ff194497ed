"""A test of kernels and an attack: gradients, but nothing is trained."""

import torch


def check_gradients(layer, x):
    with torch.autocast("cuda"):
        out = layer(x)
    out.sum().backward()  # AMP001: quiet  AMP006: quiet
    return x.grad


def attack(model, image, label, criterion, epsilon):
    with torch.autocast("cuda"):
        loss = criterion(model(image), label)
        loss.backward()  # AMP001: quiet  AMP006: flag
    return image + epsilon * image.grad.sign()
