"""Two networks, two optimizers; the generator's fake images are detached for the discriminator."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits as bce


class Gan:
    def __init__(self, generator, discriminator):
        self.generator = generator
        self.discriminator = discriminator
        self.optim_g = torch.optim.Adam(generator.parameters(), betas=(0.5, 0.999))
        self.optim_d = torch.optim.Adam(discriminator.parameters(), betas=(0.5, 0.999))

    def step(self, real, noise):
        with torch.autocast("cuda"):
            fake = self.generator(noise)
            real_logits = self.discriminator(real)
            fake_logits = self.discriminator(fake.detach())
        loss_d = bce(real_logits, torch.ones_like(real_logits))
        loss_d = loss_d + bce(fake_logits, torch.zeros_like(fake_logits))
        self.optim_d.zero_grad()
        loss_d.backward()  # AMP001: flag  AMP006: quiet
        self.optim_d.step()
        with torch.autocast("cuda"):
            logits = self.discriminator(fake)
            self.loss_g = bce(logits, torch.ones_like(logits))
            self.optim_g.zero_grad()
            self.loss_g.backward()  # AMP001: flag  AMP006: flag
        self.optim_g.step()
        return loss_d.item(), self.loss_g.item()
