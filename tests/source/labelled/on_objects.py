"""Branches on what an object was made with, losses in its methods, inputs cast before the call."""

import torch
from packaging import version
from peft import get_peft_model
from torch import nn


def autocast_of(enabled):
    if version.parse(torch.__version__) >= version.parse("2.4"):
        return torch.amp.autocast("cuda", enabled=enabled)
    return torch.cuda.amp.autocast(enabled=enabled)  # AMP014: quiet


class Cycle:
    def __init__(self, networks, amp):
        self.networks = networks
        self.amp = amp
        self.optimizer = torch.optim.AdamW(networks.parameters())
        if self.amp:
            self.scaler = torch.amp.GradScaler("cuda")

    def losses(self, images):
        loss = self.networks(images)
        if self.amp:
            self.scaler.scale(loss).backward()  # AMP006: flag
        else:
            loss.backward()  # AMP006: quiet
        return loss

    def fit(self, loader):
        for images in loader:
            self.optimizer.zero_grad()
            if self.amp:
                with torch.autocast("cuda"):
                    self.losses(images)
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.losses(images)
                self.optimizer.step()


class Accumulating:
    """One round per call; the update is in some of them only."""

    def __init__(self, optimizer, rounds):
        self.optimizer = optimizer
        self.rounds = rounds
        self.seen = 0
        self.scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, weights):
        self.seen += 1
        self.scaler.scale(loss / self.rounds).backward()
        self.scaler.unscale_(self.optimizer)  # AMP010: flag
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        if self.seen % self.rounds == 0:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 1)
        self.criterion = nn.BCELoss()

    def forward(self, features):
        return torch.sigmoid(self.body(features))

    def loss(self, features, labels):
        return self.criterion(self(features), labels)  # AMP007: flag


def train_detector(loader):
    detector = Detector().cuda()
    optimizer = torch.optim.SGD(detector.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for features, labels in loader:
        with torch.autocast("cuda"):
            loss = detector.loss(features, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def train_halved(model, loader, criterion):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for images, labels in loader:
        images = images.cuda().half()  # AMP009: flag
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def train_adapters(adapted, loader, settings):
    adapted = adapted.half()  # AMP002: quiet
    adapted = get_peft_model(adapted, settings)
    optimizer = torch.optim.AdamW(adapted.parameters())
    for batch in loader:
        loss = adapted(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
