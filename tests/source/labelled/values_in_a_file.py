"""Values that are chosen, looked up, passed or kept by an object, all in one file."""

from dataclasses import dataclass

import torch
from torch import nn

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass
class Options:
    dtype: torch.dtype = torch.float16
    other: torch.dtype = torch.float16


def by_task(model, loader, optimizer, binary):
    criterion = nn.BCELoss() if binary else nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(x.cuda()), y.cuda())  # AMP007: flag
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def by_precision(model, loader, optimizer, use_amp):
    criterion = nn.BCEWithLogitsLoss() if use_amp else nn.BCELoss()
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=use_amp):
            loss = criterion(model(x.cuda()), y.cuda())  # AMP007: quiet
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def passed(model, loader, optimizer, name, precision=torch.bfloat16):
    for x, y in loader:
        with torch.autocast("cuda", dtype=DTYPES[name]):
            loss = model(x, y)
        loss.backward()  # AMP001: flag
        optimizer.step()
        with torch.autocast("cuda", dtype=precision):
            other = model(y, x)
        other.backward()  # AMP001: quiet
        optimizer.step()


def spawned(rank, model, loader, optimizer, dtype):
    for x, y in loader:
        with torch.autocast("cuda", dtype=dtype):
            loss = model(x, y)
        loss.backward()  # AMP001: flag
        optimizer.step()


def looked_up(model, loader, optimizer):
    for x, y in loader:
        with torch.autocast("cuda", dtype={"half": torch.float16}.get("half", torch.float32)):
            loss = model(x, y)
        loss.backward()  # AMP001: flag
        optimizer.step()


class Trainer:
    def __init__(self, options, model, optimizer):
        self.options = options
        self.model = model
        self.optimizer = optimizer
        self.options.other = choose()

    def fit(self, loader):
        for x, y in loader:
            with torch.autocast("cuda", dtype=self.options.dtype):
                loss = self.model(x, y)
            loss.backward()  # AMP001: flag
            self.optimizer.step()

    def fit_otherwise(self, loader):
        for x, y in loader:
            with torch.autocast("cuda", dtype=self.options.other):
                loss = self.model(x, y)
            loss.backward()  # AMP001: quiet
            self.optimizer.step()


if __name__ == "__main__":
    model = build().cuda()
    adam = torch.optim.Adam(model.parameters())
    passed(model, batches, adam, "fp16")
    spawned(0, model, batches, adam, torch.float16)
    torch.multiprocessing.spawn(spawned, (model, batches, adam, torch.bfloat16))
    Trainer(Options(), model, adam).fit(batches)
