"""Scalers that are made for a stage, a fold or an epoch."""

import torch
from torch.amp import GradScaler, autocast
from transformers import AdamW


class Stages:
    def __init__(self, model):
        self.model = model
        self.optimizers = {}

    def optimizer_of(self, stage):
        if stage not in self.optimizers:
            self.optimizers[stage] = torch.optim.AdamW(self.model[stage].parameters())
        return self.optimizers[stage]

    def fit(self, loader, epochs):
        for _ in range(epochs):
            self.epoch(loader)

    def epoch(self, loader):
        if self.model.joint:
            return self.joint(loader)
        return self.mutually_exclusive(loader)

    def joint(self, loader):
        scaler = GradScaler("cuda")  # AMP011: flag
        for batch in loader:
            with autocast("cuda"):
                loss = self.model(batch)
            scaler.scale(loss).backward()
            scaler.step(self.optimizers["joint"])
            scaler.update()

    def mutually_exclusive(self, loader):
        scaler = GradScaler("cuda")  # AMP011: quiet
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for batch in loader:
            with autocast("cuda"):
                loss = self.model(batch)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def train_part(part, model, optimizer, loader):
    scaler = GradScaler("cuda")  # AMP011: quiet
    for epoch in range(50):
        for batch in loader:
            with autocast("cuda"):
                loss = model(batch, part, epoch)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def train_parts(model, optimizer, loaders):
    for part, loader in enumerate(loaders):
        train_part(part, model, optimizer, loader)


def train_round(model, loader):
    for batch in loader:
        with autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


for fold in range(5):
    network = build(fold).cuda()
    scaler = GradScaler("cuda")  # AMP011: quiet
    optimizer = AdamW(network.parameters(), lr=1e-5)
    for epoch in range(10):
        train_round(network, folds[fold])
