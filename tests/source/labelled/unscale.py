"""When gradients are unscaled."""

import torch


def in_every_round(model, loader, optimizer, scaler, accumulate):
    for step, batch in enumerate(loader):
        scaler.scale(model(batch) / accumulate).backward()
        scaler.unscale_(optimizer)  # AMP010: flag
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
        if (step + 1) % accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def under_the_test(model, loader, optimizer, scaler, accumulate):
    for step, batch in enumerate(loader):
        scaler.scale(model(batch) / accumulate).backward()
        if (step + 1) % accumulate == 0:
            scaler.unscale_(optimizer)  # AMP010: quiet
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def twice(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.unscale_(optimizer)  # AMP010: flag
        scaler.step(optimizer)
        scaler.update()


def in_the_helper_too(model, loader, optimizer, scaler):
    def clip():
        scaler.unscale_(optimizer)  # AMP010: flag
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        clip()
        scaler.step(optimizer)
        scaler.update()


def after_the_step(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.unscale_(optimizer)  # AMP010: flag
        scaler.update()


def two_optimizers(model, loader, optim_a, optim_b, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optim_a)  # AMP010: quiet
        scaler.unscale_(optim_b)  # AMP010: quiet
        scaler.step(optim_a)
        scaler.step(optim_b)
        scaler.update()


def skipped_when_not_finite(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            scaler.step(optimizer)
        scaler.update()


def micro_batches(model, loader, optimizer, scaler):
    for batch in loader:
        for part in batch.chunk(4):
            scaler.scale(model(part) / 4).backward()
            scaler.unscale_(optimizer)  # AMP010: flag
        scaler.step(optimizer)
        scaler.update()


def after_the_micro_batches(model, loader, optimizer, scaler):
    for batch in loader:
        for part in batch.chunk(4):
            scaler.scale(model(part) / 4).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        scaler.step(optimizer)
        scaler.update()


def before_the_second_loss(model, loader, optimizer, scaler):
    for batch in loader:
        first, second = model(batch)
        scaler.scale(first).backward(retain_graph=True)
        scaler.unscale_(optimizer)  # AMP010: flag
        scaler.scale(second).backward()
        scaler.step(optimizer)
        scaler.update()


def returns_without_an_update(model, loader, optimizer, scaler):
    for batch in loader:
        loss = model(batch)
        if not torch.isfinite(loss):
            continue
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        scaler.step(optimizer)
        scaler.update()


def two_steps_for_every_batch(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scaler.scale(model(batch.flip(-1))).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def looks_at_gradients_first(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch[:1])).backward()
        scaler.unscale_(optimizer)  # AMP010: quiet
        print(max(parameter.grad.norm() for parameter in model.parameters()))
        scaler.update()
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
