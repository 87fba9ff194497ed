"""Optimizers that are stepped twice, beside another one, or in two passes."""

import torch


def twice(model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.step()  # AMP005: flag


def twice_after_clipping(model, loader, rounds):
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for index, batch in enumerate(loader):
        with torch.autocast("cuda"):
            loss = model(batch) / rounds
        scaler.scale(loss).backward()
        if (index + 1) % rounds == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.step()  # AMP005: flag
            optimizer.zero_grad()


class Recommender:
    def __init__(self, model, half):
        self.model = model
        self.dense = torch.optim.AdamW(model.dense_parameters())
        self.sparse = torch.optim.Adagrad(model.tables.parameters()) if model.tables else None
        self.target = MovingAverage(model)
        self.scaler = torch.amp.GradScaler("cuda") if half else None

    def step(self, batch):
        with torch.autocast("cuda", enabled=self.scaler is not None):
            loss = self.model(batch)
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.dense)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.dense)
            if self.sparse is not None:
                self.sparse.step()  # AMP005: flag
            self.scaler.update()
        else:
            loss.backward()
            self.dense.step()
            if self.sparse is not None:
                self.sparse.step()  # AMP005: quiet
        self.target.step()  # AMP005: quiet


def flat(model, loader, optimizer, closure_free=True):
    """Sharpness-aware: the second pass is the one that moves the weights."""
    scaler = torch.cuda.amp.GradScaler()
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        optimizer.first_step(zero_grad=True)
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        optimizer.second_step(zero_grad=True)  # AMP005: flag
        scaler.update()
