"""A scaler whose loss comes from outside the file: the caller may compute it under autocast."""

import torch


class Stepper:
    def __init__(self, optimizer, limit):
        self.scaler = torch.amp.GradScaler("cuda")
        self.optimizer, self.limit = optimizer, limit

    def __call__(self, loss, parameters):
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # AMP012: quiet
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, self.limit)  # AMP003: quiet
        self.scaler.step(self.optimizer)
        self.scaler.update()


def apply(loss, scaler, optimizer):
    scaler.scale(loss).backward()  # AMP012: flag
    scaler.step(optimizer)
    scaler.update()


def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        optimizer.zero_grad()
        apply(model(batch).mean(), scaler, optimizer)
