"""Drives the engine."""

from engine import Engine


def train(model, optimizer, loader):
    engine = Engine(model, optimizer)
    for batch in loader:
        engine.step(batch)
        engine.scaler.update()
