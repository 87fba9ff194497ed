"""A scaler of data, not of losses, does not count."""

import torch
from sklearn.preprocessing import StandardScaler


def train(model, table, targets, optimizer, criterion):
    scaler = StandardScaler()
    inputs = torch.as_tensor(scaler.fit_transform(table)).cuda()
    with torch.cuda.amp.autocast():
        loss = criterion(model(inputs), targets)
    loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()
