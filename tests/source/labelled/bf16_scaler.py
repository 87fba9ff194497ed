"""Scalers where bfloat16 needs none."""

import torch


def always(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        scaler.scale(loss).backward()  # AMP008: flag
        scaler.step(optimizer)
        scaler.update()


def with_the_switch_of_autocast(model, loader, optimizer, use_amp):
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
    for batch in loader:
        with torch.autocast("cuda", enabled=use_amp, dtype=torch.bfloat16):
            outputs = model(batch)
            loss = outputs.mean()
        scaler.scale(loss).backward()  # AMP008: flag
        scaler.step(optimizer)
        scaler.update()


def by_dtype(model, loader, optimizer, name):
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[name]
    scaler = torch.amp.GradScaler("cuda", enabled=(dtype == torch.float16))
    for batch in loader:
        with torch.autocast("cuda", dtype=dtype):
            loss = model(batch)
        scaler.scale(loss).backward()  # AMP008: quiet
        scaler.step(optimizer)
        scaler.update()


def float16(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch)
        scaler.scale(loss).backward()  # AMP008: quiet
        scaler.step(optimizer)
        scaler.update()


def off_for_bf16(model, loader, optimizer, config):
    scaler = torch.amp.GradScaler("cuda", enabled=config.precision == "fp16")
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        scaler.scale(loss).backward()  # AMP008: quiet
        scaler.step(optimizer)
        scaler.update()


def handed_in(model, loader, optimizer, grad_scaler):
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        grad_scaler.scale(loss).backward()  # AMP008: quiet
        grad_scaler.step(optimizer)
        grad_scaler.update()


BF16 = torch.bfloat16


class Trainer:
    def __init__(self, model):
        self.model = model
        self.scaler = torch.amp.GradScaler("cuda")

    def loss(self, batch):
        with torch.amp.autocast("cuda", dtype=BF16):
            return self.model(batch)

    def step(self, batch):
        loss = self.loss(batch)
        self.scaler.scale(loss).backward()  # AMP008: flag
        self.scaler.step(self.optimizer)
        self.scaler.update()


def from_a_factory_when_sharded(model, loader, optimizer, config):
    if config.sharded:
        scaler = config.strategy.make_scaler()
    else:
        scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        scaler.scale(loss).backward()  # AMP008: flag
        scaler.step(optimizer)
        scaler.update()


def epoch(model, loader, optimizer, loss_scaler):
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        loss_scaler.scale(loss).backward()  # AMP008: flag
        loss_scaler.step(optimizer)
        loss_scaler.update()


def main(model, loader, optimizer, config):
    epoch(model, loader, optimizer, torch.amp.GradScaler("cuda"))
    epoch(model, loader, optimizer, config.strategy.make_scaler())
