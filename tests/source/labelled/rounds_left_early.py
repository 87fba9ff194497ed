"""Rounds that `continue` leaves before the update, and settings beside tests on the round."""

import torch

scaler = torch.amp.GradScaler("cuda")


def every_round_unscales(model, loader, optimizer, every):
    for step, batch in enumerate(loader):
        with torch.autocast("cuda"):
            loss = model(batch) / every
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # AMP010: flag
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
        if (step + 1) % every != 0:
            continue
        scaler.step(optimizer)  # AMP004: quiet
        scaler.update()
        optimizer.zero_grad()


def only_the_last_round_unscales(model, loader, optimizer, every):
    for step, batch in enumerate(loader):
        with torch.autocast("cuda"):
            loss = model(batch) / every
        scaler.scale(loss).backward()
        if (step + 1) % every:
            continue
        scaler.unscale_(optimizer)  # AMP010: quiet
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def clipping_is_a_setting(model, loader, optimizer, settings):
    for step, batch in enumerate(loader):
        with torch.autocast("cuda"):
            loss = model(batch)
        if settings.accumulation > 1:
            loss = loss / settings.accumulation
            scaler.scale(loss).backward()
            if settings.clip:
                scaler.unscale_(optimizer)  # AMP010: flag
                torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            if (step + 1) % settings.accumulation == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        else:
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if settings.clip:
                scaler.unscale_(optimizer)  # AMP010: quiet
                torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            scaler.step(optimizer)
            scaler.update()


def bad_rounds_update_as_well(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(batch)
        if torch.isnan(loss):
            continue
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not torch.isfinite(norm):
            scaler.update()
            continue
        scaler.step(optimizer)  # AMP004: quiet
        scaler.update()


def bad_rounds_do_not(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # AMP010: flag
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not torch.isfinite(norm):
            continue
        scaler.step(optimizer)
        scaler.update()


def both_branches_update(model, loader, optimizer, limit):
    for batch in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit) if limit else None
        if norm is None or torch.isfinite(norm):
            scaler.step(optimizer)  # AMP004: quiet
            scaler.update()
        else:
            scaler.step(optimizer)
            scaler.update()
