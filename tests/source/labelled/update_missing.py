"""Rounds that never end."""

import torch
from torch.amp import GradScaler


def simple(model, loader, optimizer):
    scaler = GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # AMP004: flag
        optimizer.zero_grad(set_to_none=True)


def in_a_branch(model, loader, optimizer, scaler, schedule):
    for step, batch in enumerate(loader):
        scaler.scale(model(batch)).backward()
        if schedule.warm(step):
            scaler.step(optimizer)  # AMP004: flag
        else:
            scaler.step(optimizer)  # AMP004: quiet
            scaler.update()


def accumulates(model, loader, optimizer, scaler, every):
    for step, batch in enumerate(loader):
        scaler.scale(model(batch) / every).backward()
        if (step + 1) % every == 0 or step + 1 == len(loader):
            scaler.step(optimizer)  # AMP004: quiet
            scaler.update()
            optimizer.zero_grad()


def gan(generator, critic, optim_g, optim_d, loader, scaler, critic_rounds):
    for real in loader:
        for _ in range(critic_rounds):
            scaler.scale(critic(real)).backward()
            scaler.step(optim_d)  # AMP004: quiet
            scaler.update()
        scaler.scale(critic(generator(real))).backward()
        scaler.step(optim_g)  # AMP004: quiet
        scaler.update()


def several_optimizers(model, loader, optimizers, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        for optimizer in optimizers.values():
            scaler.step(optimizer)  # AMP004: quiet
        scaler.update()


def in_an_inner_function(model, loader, optimizer, scaler):
    def finish():
        scaler.step(optimizer)  # AMP004: quiet
        scaler.update()
        optimizer.zero_grad()

    for batch in loader:
        scaler.scale(model(batch)).backward()
        finish()


def the_caller_updates(scaler, loss, optimizer):
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # AMP004: quiet


def now_and_then(model, loader, optimizer, scaler):
    for step, batch in enumerate(loader):
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)  # AMP004: flag
        if step % 100 == 99:
            scaler.update()
