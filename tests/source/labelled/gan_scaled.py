"""The GAN with one scaler per optimizer; backward stays inside the region."""

import torch
from torch.amp import GradScaler


def step(generator, discriminator, optim_g, optim_d, real, noise, adversarial):
    d_scaler, g_scaler = GradScaler("cuda"), GradScaler("cuda")
    with torch.autocast("cuda"):
        fake = generator(noise)
        loss_d = adversarial(discriminator(real), discriminator(fake.detach()))
        d_scaler.scale(loss_d).backward()  # AMP001: quiet  AMP006: flag
    d_scaler.step(optim_d)
    d_scaler.update()
    with torch.autocast("cuda"):
        loss_g = adversarial(discriminator(fake), None)
    g_scaler.scale(loss_g).backward()  # AMP001: quiet  AMP006: quiet
    g_scaler.step(optim_g)
    g_scaler.update()


ROUNDS = 1


def one_round_each(generator, discriminator, loader, opt_g, opt_d, scaler):
    for batch in loader:
        for _ in range(ROUNDS):
            opt_d.zero_grad()
            scaler.scale(discriminator(batch)).backward()
            scaler.unscale_(opt_d)  # AMP010: quiet
            scaler.step(opt_d)  # AMP004: quiet
        opt_g.zero_grad()
        scaler.scale(generator(batch)).backward()
        scaler.step(opt_g)  # AMP004: quiet
        scaler.update()


def five_rounds(generator, discriminator, loader, opt_g, opt_d, scaler):
    for batch in loader:
        for _ in range(5):
            opt_d.zero_grad()
            scaler.scale(discriminator(batch)).backward()
            scaler.unscale_(opt_d)  # AMP010: flag
            scaler.step(opt_d)  # AMP004: flag
        opt_g.zero_grad()
        scaler.scale(generator(batch)).backward()
        scaler.step(opt_g)  # AMP004: quiet
        scaler.update()
