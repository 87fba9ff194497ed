"""Generative models: GANs, autoencoders, diffusion, flows, autoregressive convolutions."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import spectral_norm


def build_dcgan_generator() -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = []
    channels = [100, 512, 256, 128, 64]
    for position, (inner, outer) in enumerate(pairwise(channels)):
        stride, padding = (1, 0) if position == 0 else (2, 1)
        layers += [
            nn.ConvTranspose2d(inner, outer, 4, stride, padding, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(True),
        ]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()), torch.zeros(16, 100, 1, 1)


def build_spectral_discriminator() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        *(
            layer
            for inner, outer in ((3, 64), (64, 128), (128, 256))
            for layer in (spectral_norm(nn.Conv2d(inner, outer, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True))
        ),
        nn.Flatten(),
        spectral_norm(nn.Linear(256 * 8 * 8, 1)),
    )
    return model, torch.zeros(16, 3, 64, 64)


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 400), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(400, 20), nn.Linear(400, 20)
        self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        flat = images.flatten(1)
        hidden = self.encoder(flat)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        posterior = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
        rebuilt = self.decoder(posterior.rsample())
        divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum()
        return {"loss": F.binary_cross_entropy_with_logits(rebuilt, flat, reduction="sum") + divergence}


def build_vae_with_distributions() -> tuple[nn.Module, Tensor]:
    return Vae(), torch.zeros(32, 1, 28, 28)


class VectorQuantizer(nn.Module):
    def __init__(self, codes: int = 512, size: int = 64) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Conv2d(3, size, 4, 4), nn.ConvTranspose2d(size, 3, 4, 4)
        self.codebook = nn.Embedding(codes, size)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        latent = self.encoder(images).permute(0, 2, 3, 1).contiguous()
        nearest = torch.cdist(latent.flatten(0, 2), self.codebook.weight).argmin(dim=1)
        used = torch.zeros(nearest.shape[0], self.codebook.num_embeddings, device=images.device)
        used.scatter_(1, nearest.unsqueeze(1), 1)
        quantized = (used @ self.codebook.weight).view_as(latent)
        perplexity = torch.exp(-(used.mean(0) * torch.log(used.mean(0) + 1e-10)).sum())
        straight_through = latent + (quantized - latent).detach()
        return self.decoder(straight_through.permute(0, 3, 1, 2)), F.mse_loss(quantized, latent), perplexity


def build_vq_vae() -> tuple[nn.Module, Tensor]:
    return VectorQuantizer(), torch.zeros(8, 3, 32, 32)


def timestep_embedding(steps: Tensor, size: int) -> Tensor:
    frequencies = torch.exp(-math.log(10000) * torch.arange(size // 2, device=steps.device) / (size // 2))
    angles = steps[:, None].float() * frequencies[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class ResidualBlock(nn.Module):
    def __init__(self, inner: int, outer: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1))
        self.time = nn.Linear(time, 2 * outer)
        self.norm, self.last = nn.GroupNorm(8, outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, dim=1)
        hidden = self.norm(self.first(x)) * (1 + scale) + shift
        return self.skip(x) + self.last(F.silu(hidden))


class DiffusionUNet(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(ResidualBlock(a, b, 4 * width) for a, b in pairwise(widths))
        self.middle = ResidualBlock(widths[-1], widths[-1], 4 * width)
        self.attention = nn.MultiheadAttention(widths[-1], 4, batch_first=True)
        self.up = nn.ModuleList(
            ResidualBlock(2 * b, a, 4 * width) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, noisy: Tensor, steps: Tensor) -> Tensor:
        time = self.time(timestep_embedding(steps, self.stem.out_channels))
        x, skips = self.stem(noisy), []
        for block in self.down:
            x = block(x, time)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, time)
        tokens = x.flatten(2).transpose(1, 2)
        x = x + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).view_as(x)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat([x, skips.pop()], dim=1), time)
        return self.head(x)


def build_diffusion_unet() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return DiffusionUNet(), (torch.zeros(4, 3, 32, 32), torch.randint(0, 1000, (4,)))


class DdimSampler(nn.Module):
    """The sampling loop as a forward, with a schedule indexed by Python integers."""

    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.network = DiffusionUNet(32)
        betas = torch.linspace(1e-4, 0.02, 1000)
        self.register_buffer("alphas", torch.cumprod(1 - betas, dim=0))

    @torch.no_grad()
    def forward(self, count: int) -> Tensor:
        image = torch.randn(count, 3, 32, 32, device=self.alphas.device)
        for step in reversed(range(0, 1000, 1000 // self.steps)):
            now = self.alphas[step]
            before = self.alphas[step - 1000 // self.steps] if step else torch.tensor(1.0)
            noise = self.network(image, torch.full((count,), step))
            clean = ((image - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
            image = before.sqrt() * clean + (1 - before).sqrt() * noise
        return image


def build_ddim_sampling_loop() -> tuple[nn.Module, tuple[int]]:
    return DdimSampler(), (2,)


class Coupling(nn.Module):
    def __init__(self, size: int, flip: bool) -> None:
        super().__init__()
        mask = torch.zeros(size)
        mask[int(flip) :: 2] = 1
        self.register_buffer("mask", mask)
        self.scale = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, size))
        self.shift = nn.Sequential(nn.Linear(size, 64), nn.ReLU(), nn.Linear(64, size))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = x * self.mask
        scale = self.scale(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * scale.exp() + self.shift(kept)), scale.sum(-1)


class Flow(nn.Module):
    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(size, bool(index % 2)) for index in range(4))
        self.rotation = nn.Parameter(torch.linalg.qr(torch.randn(size, size))[0])

    def forward(self, x: Tensor) -> Tensor:
        total = torch.slogdet(self.rotation)[1].expand(x.shape[0])
        x = x @ self.rotation
        for coupling in self.couplings:
            x, log_determinant = coupling(x)
            total = total + log_determinant
        prior = torch.distributions.MultivariateNormal(torch.zeros(x.shape[1]), torch.eye(x.shape[1]))
        return prior.log_prob(x) + total


def build_normalizing_flow() -> tuple[nn.Module, Tensor]:
    return Flow(), torch.zeros(128, 6)


class MaskedConv2d(nn.Conv2d):
    def __init__(self, *args: int, is_first: bool, **kwargs: int) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("mask", torch.ones_like(self.weight))
        middle = self.weight.shape[-1] // 2
        self.mask[:, :, middle, middle + (not is_first) :] = 0
        self.mask[:, :, middle + 1 :] = 0

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data *= self.mask
        return super().forward(x)


def build_pixel_cnn() -> tuple[nn.Module, Tensor]:
    blocks: list[nn.Module] = [MaskedConv2d(1, 64, 7, padding=3, is_first=True)]
    for _ in range(3):
        blocks += [nn.ReLU(), MaskedConv2d(64, 64, 7, padding=3, is_first=False)]
    return nn.Sequential(*blocks, nn.Conv2d(64, 256, 1)), torch.zeros(8, 1, 28, 28)


class ModulatedConv(nn.Module):
    """One weight per sample, run as a grouped convolution over the batch (StyleGAN 2)."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.style = nn.Linear(128, channels)
        self.weight = nn.Parameter(torch.randn(channels, channels, 3, 3))

    def forward(self, x: Tensor, latent: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        weight = self.weight[None] * self.style(latent)[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum(dim=(2, 3, 4), keepdim=True) + 1e-8)
        out = F.conv2d(
            x.reshape(1, batch * channels, height, width), weight.flatten(0, 1), padding=1, groups=batch
        )
        return out.view(batch, channels, height, width)


def build_modulated_convolution() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return ModulatedConv(), (torch.zeros(4, 64, 16, 16), torch.zeros(4, 128))
