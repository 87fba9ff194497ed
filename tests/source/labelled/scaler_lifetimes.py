"""Scalers that are made again for every epoch, and updates that come too early."""

import torch


class Trainer:
    def __init__(self, model, phases):
        self.model = model
        self.phases = phases
        self.optimizer = torch.optim.AdamW(model.parameters())

    def epoch(self, loader):
        scaler = torch.amp.GradScaler("cuda")  # AMP011: flag
        for batch in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = self.model(batch)
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()

    def fit(self, loader, epochs):
        for _ in range(epochs):
            self.epoch(loader)


class Experiments:
    def run(self, loader):
        scaler = torch.amp.GradScaler("cuda")  # AMP011: quiet
        for batch in loader:
            scaler.scale(self.model(batch)).backward()
            scaler.step(self.optimizer)
            scaler.update()

    def compare(self, loader, widths):
        for width in widths:
            self.model, self.optimizer = make(width)
            self.run(loader)


def each_phase(model, optimizer, loaders):
    for phase in ("train", "val"):
        scaler = torch.amp.GradScaler("cuda")  # AMP011: quiet
        for batch in loaders[phase]:
            loss = model(batch)
            if phase == "train":
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()


def update_then_step(model, loader, optimizer, scaler=None):
    for batch in loader:
        loss = model(batch)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.update()  # AMP011: flag
            scaler.step(optimizer)


def stepped_by_the_optimizer(model, loader, optimizer):
    scaler = optimizer.scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        scaler.scale(model(batch)).backward()
        optimizer.clip_and_step(1.0)
        scaler.update()  # AMP011: quiet


def new_scale_given(model, loader, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer_of(model))
        scaler.update(1024.0)  # AMP011: quiet


class WithHooks(Base):
    def step(self, loss):
        self.scaler = torch.amp.GradScaler("cuda")
        self.scaler.scale(loss).backward()
        self.after_backward()
        self.scaler.update()  # AMP011: quiet


class Steps:
    def train_step(self, batch):
        scaler = torch.amp.GradScaler("cuda")  # AMP011: flag
        scaler.scale(self.model(batch)).backward()
        scaler.step(self.optimizer)
        scaler.update()

    def train(self, loader):
        for batch in loader:
            self.train_step(batch)


class Searching:
    def run(self, loader):
        scaler = torch.amp.GradScaler("cuda")  # AMP011: quiet
        for batch in loader:
            scaler.scale(self.model(batch)).backward()
            scaler.step(self.optimizer)
            scaler.update()


def main(loader, epochs):
    for rate in (0.1, 0.01):
        searching = Searching(rate)
        searching.run(loader)


def only_one_of_them(loss, optimizers, scaler, chosen):
    scaler.scale(loss).backward()
    for index, optimizer in enumerate(optimizers):
        if chosen is not None and index != chosen:
            continue
        scaler.step(optimizer)
        scaler.update()  # AMP011: quiet


def skips_a_round(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        loss = model(batch)
        if not torch.isfinite(loss):
            scaler.update()  # AMP011: flag
            continue
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()  # AMP011: quiet


def skips_after_unscaling(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        if not torch.isfinite(norm_of(model)):
            scaler.update()  # AMP011: quiet
            continue
        scaler.step(optimizer)
        scaler.update()  # AMP011: quiet


def sets_the_scale(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        if scaler.get_scale() < 1:
            scaler.update(1.0)  # AMP011: quiet
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()  # AMP011: quiet


def accumulates_and_skips(model, loader, optimizer, every):
    scaler = torch.amp.GradScaler("cuda")
    for step, batch in enumerate(loader):
        loss = model(batch)
        if not torch.isfinite(loss):
            scaler.update()  # AMP011: flag
            continue
        scaler.scale(loss / every).backward()
        scaler.unscale_(optimizer)  # AMP010: flag
        if step % every == 0:
            scaler.step(optimizer)
            scaler.update()  # AMP011: quiet
