"""Closures, lifetimes, factors, looks at gradients."""

import torch


def new_every_round(model, loader, optimizer):
    for batch in loader:
        scaler = torch.amp.GradScaler("cuda")  # AMP011: flag
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def new_per_fold(build, folds):
    for fold in folds:
        model = build()
        optimizer = torch.optim.Adam(model.parameters())
        scaler = torch.amp.GradScaler("cuda")  # AMP011: quiet
        for batch in fold:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            scaler.update()


def between_two_steps(model, loader, optim_a, optim_b, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optim_a)
        scaler.update()  # AMP011: flag
        scaler.step(optim_b)


def factors(enabled):
    yield torch.amp.GradScaler("cuda", growth_factor=1.0)  # AMP019: flag
    yield torch.amp.GradScaler("cuda", init_scale=2.0**14)  # AMP019: quiet
    yield torch.amp.GradScaler("cuda", backoff_factor=2)  # AMP019: flag
    yield torch.amp.GradScaler("cuda", growth_interval=enabled)  # AMP019: quiet


def logs_scaled_norms(model, loader, optimizer, scaler, log):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        log(model.head.weight.grad.norm())  # AMP020: flag
        scaler.step(optimizer)
        scaler.update()


def logs_norms(model, loader, optimizer, scaler, log):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(optimizer)
        log(model.head.weight.grad.norm())  # AMP020: quiet
        scaler.step(optimizer)
        scaler.update()


def dtypes(model, batch):
    with torch.autocast("cuda", dtype=torch.float32):  # AMP023: flag
        model(batch)
    with torch.autocast("cuda", dtype=torch.float32, enabled=False):  # AMP023: quiet
        model(batch)
