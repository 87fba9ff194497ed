"""The probabilities' loss for one function, that or the logits' loss for the other."""

import torch
from engine import train_epoch, train_logits

criterion = torch.nn.BCELoss()
scaler = torch.amp.GradScaler("cuda")
for _ in range(10):
    train_epoch(model, criterion, make_loader(), optimizer, scaler)  # AMP007: flag
    train_logits(model, torch.nn.BCEWithLogitsLoss(), make_loader(), optimizer, scaler)
    if probabilities:
        train_logits(model, criterion, make_loader(), optimizer, scaler)  # AMP007: flag
