"""Dtypes of autocast that another file of the project states."""

import torch
from settings import *
from settings import Config


def train(model, loader, optimizer, config):
    for x, y in loader:
        with torch.autocast("cuda", dtype=DTYPE):
            loss = model(x, y)
        loss.backward()  # AMP001: flag
        optimizer.step()
        with torch.autocast("cuda", dtype=SAFE):
            other = model(x, y)
        other.backward()  # AMP001: quiet
        optimizer.step()
        with torch.autocast("cuda", dtype=config.dtype):
            last = model(x, y)
        last.backward()  # AMP001: quiet
        optimizer.step()


def finetune(model, loader, optimizer):
    config = Config()
    for x, y in loader:
        with torch.autocast("cuda", dtype=config.dtype):
            loss = model(x, y)
        loss.backward()  # AMP001: flag
        optimizer.step()
