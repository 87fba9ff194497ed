"""Steps over groups of optimizers whose update is the caller's, and schedulers handed to the scaler."""

import torch


class Optimizers:
    def __init__(self, optimizers, limits, parameters):
        self.optimizers = optimizers
        self.limits = limits
        self.parameters = parameters

    def step_some(self, grad_scaler, groups):
        for group in groups:
            optimizer = self.optimizers[group]
            limit = self.limits[group]
            if limit is not None:
                grad_scaler.unscale_(optimizer)  # AMP010: quiet
                torch.nn.utils.clip_grad_norm_(self.parameters[group], limit)  # AMP003: quiet
            grad_scaler.step(optimizer)  # AMP004: quiet


def step_in_rounds(model, loader, optimizers, scaler):
    for step, batch in enumerate(loader):
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)  # AMP004: flag
            optimizer.zero_grad()


def one_update_per_epoch(model, loader, optimizer, scaler, epochs):
    for _ in range(epochs):
        for batch in loader:
            with torch.autocast("cuda"):
                loss = model(batch)
            scaler.scale(loss).backward()
            scaler.step(optimizer)  # AMP004: flag
            optimizer.zero_grad()
        scaler.update()


def last_micro_batch_steps(model, loader, optimizer, scaler, micro):
    for batch in loader:
        for index in range(micro):
            with torch.autocast("cuda"):
                loss = model(batch[index])
            scaler.scale(loss).backward()
            if index == micro - 1:
                scaler.step(optimizer)  # AMP004: quiet
        scaler.update()
        optimizer.zero_grad()


def picked_by_name(trainer, names):
    for name in names:
        optimizer = trainer.optimizer_of(name)
        trainer.scaler.step(optimizer)  # AMP004: quiet
    trainer.scaler.update()
