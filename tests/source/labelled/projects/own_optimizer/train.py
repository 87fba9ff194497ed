"""Steps and losses that code of another file takes care of."""

import torch
from precision import MixedOptimizer, scaled_mean


def train(model, loader):
    optimizer = MixedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch.cuda()).mean()
        optimizer.scaler.scale(loss).backward()
        optimizer.step()  # AMP005: quiet


def train_outputs(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            outputs = model(batch.cuda())
        loss = scaled_mean(outputs, scaler)
        loss.backward()  # AMP013: quiet
        scaler.step(optimizer)
        scaler.update()


def train_forgetfully(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch.cuda()).mean()
        loss.backward()  # AMP013: flag
        scaler.step(optimizer)
        scaler.update()
