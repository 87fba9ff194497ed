"""Optimizers that step around the scaler."""

import torch
from torch import optim


def plain(model, loader):
    optimizer = optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        optimizer.step()  # AMP005: flag
        scaler.update()


def clipped_and_stepped(model, loader, optimizer_adam, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: flag
        optimizer_adam.step()  # AMP005: flag


def twice(model, loader, optimizer, scaler, scheduler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.step()  # AMP005: flag
        scheduler.step()  # AMP005: quiet


def right(model, loader, optimizer, scheduler):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()  # AMP005: quiet


def by_the_device(model, loader, optimizer, device):
    scaler = torch.amp.GradScaler("cuda") if device.type == "cuda" else None
    for batch in loader:
        loss = model(batch)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()  # AMP013: quiet
            optimizer.step()  # AMP005: quiet


def unscaled_first(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        optimizer.step()  # AMP005: flag
        scaler.update()


def one_optimizer_in_full_precision(model, codec, loader, optimizer, aux_optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
        aux_loss = codec.aux_loss()
        aux_loss.backward()  # AMP013: quiet
        aux_optimizer.step()  # AMP005: quiet


def off(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    for batch in loader:
        scaler.scale(model(batch)).backward()
        optimizer.step()  # AMP005: quiet


def early_exit(model, loader, optimizer, scaler, amp):
    for batch in loader:
        loss = model(batch)
        if amp:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            continue
        loss.backward()  # AMP013: quiet
        optimizer.step()  # AMP005: quiet


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optim = optim.SGD(model.parameters(), lr=0.1)
        self.grad_scaler = torch.amp.GradScaler("cuda")

    def backward(self, loss):
        self.grad_scaler.scale(loss).backward()

    def finish(self):
        self.optim.step()  # AMP005: flag
        self.optim.zero_grad()

    def train_step(self, batch):
        self.backward(self.model(batch))
        self.finish()
