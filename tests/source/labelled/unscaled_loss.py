"""Scaler steps whose loss was (not) scaled."""

import torch


def forgotten(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        loss.backward()  # AMP013: flag
        scaler.step(optimizer)
        scaler.update()


def result_thrown_away(model, loader, optimizer, scaler):
    for batch in loader:
        loss = model(batch)
        scaler.scale(loss)
        loss.backward()  # AMP013: flag
        scaler.step(optimizer)
        scaler.update()


def scaled_before(model, loader, optimizer, scaler):
    for batch in loader:
        loss = scaler.scale(model(batch))
        loss.backward()  # AMP013: quiet
        scaler.step(optimizer)
        scaler.update()


def scaled_sum(model, loader, optimizer, scaler):
    for batch in loader:
        losses = model(batch)
        total = scaler.scale(sum(losses.values())) / 4
        total.backward()  # AMP013: quiet
        scaler.step(optimizer)
        scaler.update()


def through_the_function(model, loader, optimizer, scaler):
    for batch in loader:
        torch.autograd.backward(scaler.scale(model(batch)))  # AMP013: quiet
        scaler.step(optimizer)
        scaler.update()


def scaled_by_a_helper(model, loader, optimizer, scaler):
    def loss_of(batch):
        return scaler.scale(model(batch))

    for batch in loader:
        loss = loss_of(batch)
        loss.backward()  # AMP013: quiet
        scaler.step(optimizer)
        scaler.update()


def one_of_two(generator, critic, optim_g, optim_d, loader, scaler):
    for real in loader:
        d_loss = critic(real)
        d_loss.backward()  # AMP013: flag
        scaler.step(optim_d)
        g_loss = critic(generator(real))
        scaler.scale(g_loss).backward()
        scaler.step(optim_g)
        scaler.update()


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.scaler = torch.amp.GradScaler("cuda")

    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def train(self, batch):
        loss = self.model(batch)
        loss.backward()  # AMP013: flag
        self.step()

    def train_well(self, batch):
        loss = self.model(batch)
        self.scaler.scale(loss).backward()
        self.step()


def engine_goes_backward(model, engine, loader, optimizer, scaler):
    for batch in loader:
        engine.backward(model(batch))  # AMP013: quiet
        scaler.step(optimizer)
        scaler.update()
