"""A trainer with its context in an attribute, a helper that computes the loss, and hooks."""

from contextlib import contextmanager, nullcontext

import torch


class Trainer:
    def __init__(self, model, optimizer, criterion, amp=True):
        self.model = model
        self.optimizer = optimizer
        self.criterion = criterion
        self.amp = amp
        self.context = torch.autocast("cuda", dtype=torch.float16) if amp else nullcontext()

    def compute_loss(self, batch):
        with self.context:
            return self.criterion(self.model(batch["x"]), batch["y"])

    def train_step(self, batch):
        loss = self.compute_loss(batch)
        self.optimizer.zero_grad()
        loss.backward()  # AMP001: flag  AMP006: quiet
        self.optimizer.step()

    @contextmanager
    def maybe_autocast(self):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.amp):
            yield

    def train_step_under(self, batch):
        with self.maybe_autocast():
            loss = self.model(batch)
            loss.backward()  # AMP001: quiet  AMP006: flag
        self.optimizer.step()

    def backward(self, loss):
        loss.backward()  # AMP001: flag  AMP006: flag

    def train_step_delegated(self, batch):
        with torch.autocast("cuda"):
            loss = self.model(batch)
            self.backward(loss)  # AMP001: quiet  AMP006: quiet
        self.optimizer.step()
