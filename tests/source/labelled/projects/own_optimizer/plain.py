"""No scaler in sight; the optimizer has it."""

import torch
from precision import MixedOptimizer


def train(model, loader):
    optimizer = MixedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch.cuda()).mean()
        loss.backward()  # AMP001: quiet  AMP013: flag
        optimizer.step()


def train_plainly(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch.cuda()).mean()
        loss.backward()  # AMP001: flag
        optimizer.step()
