"""Where gradients are clipped in a scaled step."""

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_


def right(model, loader, optimizer, criterion):
    scaler = torch.amp.GradScaler("cuda")
    for images, labels in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
        scaler.step(optimizer)  # AMP004: quiet
        scaler.update()


def forgotten(model, loader, optimizer, criterion):
    scaler = torch.amp.GradScaler("cuda")
    for images, labels in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # AMP003: flag
        scaler.step(optimizer)
        scaler.update()


def too_late(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)  # AMP003: flag
        scaler.unscale_(optimizer)  # AMP010: quiet
        scaler.step(optimizer)
        scaler.update()


def as_an_option(model, loader, optimizer, scaler, max_norm=None):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        if max_norm is not None:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), max_norm)  # AMP003: quiet
        scaler.step(optimizer)
        scaler.update()


def unscaled_for_one_way_only(model, loader, optimizer, scaler, args):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        if args.clip_mode == "norm":
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), args.clip)  # AMP003: quiet
        elif args.clip_mode == "value":
            clip_grad_value_(model.parameters(), args.clip)  # AMP003: flag
        scaler.step(optimizer)
        scaler.update()


def two_branches(model, loader, optimizer, scaler, use_amp):
    for batch in loader:
        loss = model(batch)
        if use_amp and scaler:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 5.0)  # AMP003: quiet
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()  # AMP013: quiet
            clip_grad_norm_(model.parameters(), 5.0)  # AMP003: quiet
            optimizer.step()  # AMP005: quiet


def clip_after_both_branches(model, loader, optimizer, scaler, args):
    for batch in loader:
        loss = model(batch)
        if args.amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()  # AMP013: quiet
        clip_grad_norm_(model.parameters(), 5.0)  # AMP003: flag
        if args.amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()  # AMP005: quiet


def one_model_of_two(generator, critic, optim_g, optim_d, loader, scaler):
    for real in loader:
        scaler.scale(critic(real)).backward()
        scaler.unscale_(optim_d)
        clip_grad_norm_(critic.parameters(), 1.0)  # AMP003: quiet
        scaler.step(optim_d)
        scaler.scale(critic(generator(real))).backward()
        clip_grad_norm_(generator.parameters(), 1.0)  # AMP003: flag
        scaler.step(optim_g)
        scaler.update()


def by_hand(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.data.clamp_(-1.0, 1.0)  # AMP003: flag
        scaler.step(optimizer)
        scaler.update()


def inputs_clamped(model, loader, optimizer, scaler):
    for batch in loader:
        batch.data.clamp_(-1.0, 1.0)  # AMP003: quiet
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()


def without_scaler(model, loader, optimizer):
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        loss.backward()  # AMP001: quiet
        clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
        optimizer.step()  # AMP005: quiet


def make_scaler(enabled):
    return torch.amp.GradScaler("cuda", enabled=enabled)


def from_a_helper(model, loader, optimizer, args):
    guard = make_scaler(args.amp)
    for batch in loader:
        guard.scale(model(batch)).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # AMP003: flag
        guard.step(optimizer)
        guard.update()
