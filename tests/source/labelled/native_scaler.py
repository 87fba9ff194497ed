"""The scaler as an object that does the whole step, as in timm and MAE."""

import torch


class NativeScaler:
    state_dict_key = "amp_scaler"

    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, update_grad=True):
        self._scaler.scale(loss).backward()
        norm = None
        if update_grad:
            if clip_grad is not None:
                self._scaler.unscale_(optimizer)  # AMP010: quiet
                norm = torch.nn.utils.clip_grad_norm_(parameters, clip_grad)  # AMP003: quiet
            self._scaler.step(optimizer)  # AMP004: quiet
            self._scaler.update()
        return norm

    def state_dict(self):
        return self._scaler.state_dict()


class CarelessScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, optimizer, parameters, clip_grad=1.0):
        self._scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(parameters, clip_grad)  # AMP003: flag
        self._scaler.step(optimizer)
        self._scaler.update()


class StepsLater:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss):
        self._scaler.scale(loss).backward()

    def step(self, optimizer, clip_grad=None, parameters=None):
        if clip_grad is not None:
            self._scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, clip_grad)  # AMP003: quiet
        self._scaler.step(optimizer)  # AMP004: quiet
        self._scaler.update()


def train_one_epoch(model, loader, optimizer, loss_scaler):
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())


def train_with_step(model, loader, optimizer):
    loss_scaler = StepsLater()
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        loss_scaler(loss)
        loss_scaler.step(optimizer)  # AMP004: quiet
        optimizer.zero_grad()


class LoopFreeScaler:
    """A round without an end."""

    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def train(self, model, loader, optimizer):
        for batch in loader:
            self.backward(model(batch))
            self.step(optimizer)

    def backward(self, loss):
        self._scaler.scale(loss).backward()

    def step(self, optimizer):
        self._scaler.unscale_(optimizer)
        self._scaler.step(optimizer)  # AMP004: quiet
        self._scaler.update()
