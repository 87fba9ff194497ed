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


def lbfgs(model, batch, scaler):
    solver = torch.optim.LBFGS(model.parameters())

    def closure():
        solver.zero_grad()
        loss = model(batch)
        scaler.scale(loss).backward()
        return loss

    scaler.step(solver, closure)  # AMP021: flag
    scaler.update()


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


def devices(model, batch, name):
    device = torch.device("cuda")
    with torch.autocast(device):  # AMP022: flag
        model(batch)
    with torch.autocast(device.type):  # AMP022: quiet
        model(batch)
    with torch.autocast(name):  # AMP022: quiet
        model(batch)
    with torch.autocast(enabled=True):  # AMP022: flag
        model(batch)
    with torch.autocast("cuda", dtype=torch.float32):  # AMP023: flag
        model(batch)
    with torch.autocast("cuda", dtype=torch.float32, enabled=False):  # AMP023: quiet
        model(batch)
    with torch.autocast("cuda"):
        torch.mm(batch, batch, out=batch)  # AMP026: flag
        torch.add(batch, batch, out=batch)  # AMP026: quiet
        batch.addmm_(batch, batch)  # AMP026: flag
