"""The loss is an argument that only other files know."""

import torch


def train_epoch(model, criterion, loader, optimizer, scaler):
    for images, labels in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)  # AMP007: flag
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def train_logits(model, criterion, loader, optimizer, scaler):
    for images, labels in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)  # AMP007: flag
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
