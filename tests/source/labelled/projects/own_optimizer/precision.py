"""An optimizer that keeps the scaler to itself."""

import torch


class MixedOptimizer:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler("cuda")

    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()


def scaled_mean(outputs, scaler):
    return scaler.scale(outputs.mean())
