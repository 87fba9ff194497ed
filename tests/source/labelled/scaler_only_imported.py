"""The scaler of an earlier version is commented out."""

import torch
from torch.cuda.amp import GradScaler, autocast


def train(network, loader, optimizer, schedule, criterion):
    # scaler = GradScaler()
    for sequences, masks, labels in loader:
        network.zero_grad()
        with autocast():
            scores = network(sequences.cuda(), masks.cuda())
            loss = criterion(scores, labels.cuda())
        loss.backward()  # AMP001: flag
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        # scaler.update()
        schedule.step()
