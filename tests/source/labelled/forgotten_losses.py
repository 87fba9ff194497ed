"""One of several losses goes backward without the scaler, on the same path as the others."""

import torch
from torch.amp import GradScaler

scaler_d = GradScaler("cuda")


def two_networks(generator, discriminator, batch, opt_g, opt_d):
    with torch.autocast("cuda"):
        d_loss = discriminator(batch)
    opt_d.zero_grad()
    scaler_d.scale(d_loss).backward()
    scaler_d.step(opt_d)
    scaler_d.update()
    with torch.autocast("cuda"):
        g_loss = generator(batch)
    opt_g.zero_grad()
    g_loss.backward()  # AMP001: flag
    opt_g.step()  # AMP005: quiet


def one_optimizer(model, batch, optimizer):
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        loss, auxiliary = model(batch)
    scaler_d.scale(loss).backward(retain_graph=True)
    auxiliary.backward()  # AMP013: flag
    scaler_d.step(optimizer)
    scaler_d.update()
