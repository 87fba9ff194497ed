"""Vision models as people write them in their own repositories: sizes in the constructor or nowhere."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CifarNet(nn.Module):
    """A flattened feature map fixes the image size: 32 x 32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def build_cifar_net() -> tuple[nn.Module, Tensor]:
    return CifarNet(), torch.zeros(16, 3, 32, 32)


class CatsAndDogs(nn.Module):
    """150 x 150 images, which nothing but a Linear tells."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inner, outer in ((3, 32), (32, 64), (64, 128), (128, 128)):
            layers += [nn.Conv2d(inner, outer, 3), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.5), nn.Linear(128 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.classifier(self.features(x)))


def build_cats_and_dogs() -> tuple[nn.Module, Tensor]:
    return CatsAndDogs(), torch.zeros(16, 3, 150, 150)


class DrivingNet(nn.Module):
    """End-to-end driving: images of 66 x 200, which are not square."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_layers = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2),
            nn.ELU(),
            nn.Conv2d(24, 36, 5, stride=2),
            nn.ELU(),
            nn.Conv2d(36, 48, 5, stride=2),
            nn.ELU(),
            nn.Conv2d(48, 64, 3),
            nn.ELU(),
            nn.Conv2d(64, 64, 3),
            nn.Dropout(0.5),
        )
        self.linear_layers = nn.Sequential(nn.Linear(64 * 1 * 18, 100), nn.ELU(), nn.Linear(100, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_layers(x)
        return self.linear_layers(x.view(x.size(0), -1))


def build_driving_net() -> tuple[nn.Module, Tensor]:
    return DrivingNet(), torch.zeros(16, 3, 66, 200)


class DoubleConv(nn.Sequential):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(
            nn.Conv2d(inner, outer, 3, padding=1),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
            nn.Conv2d(outer, outer, 3, padding=1),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Unpadded pooling: sizes must be multiples of 16."""

    def __init__(self, n_channels: int = 1, n_classes: int = 2) -> None:
        super().__init__()
        widths = [64, 128, 256, 512]
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        inner = n_channels
        for width in widths:
            self.downs.append(DoubleConv(inner, width))
            inner = width
        self.bottleneck = DoubleConv(512, 1024)
        for width in reversed(widths):
            self.ups.append(nn.ConvTranspose2d(width * 2, width, 2, 2))
            self.ups.append(DoubleConv(width * 2, width))
        self.final = nn.Conv2d(64, n_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottleneck(x)
        for index in range(0, len(self.ups), 2):
            x = self.ups[index](x)
            x = self.ups[index + 1](torch.cat([skips.pop(), x], dim=1))
        return self.final(x)


def build_u_net() -> tuple[nn.Module, Tensor]:
    return UNet(), torch.zeros(4, 1, 256, 256)


class FlatVae(nn.Module):
    """Images as flat vectors: 784 values."""

    def __init__(self, hidden: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, hidden)
        self.fc21, self.fc22 = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.fc3, self.fc4 = nn.Linear(latent, hidden), nn.Linear(hidden, 784)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = F.relu(self.fc1(x.view(-1, 784)))
        mu, logvar = self.fc21(hidden), self.fc22(hidden)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def build_flat_vae() -> tuple[nn.Module, Tensor]:
    return FlatVae(), torch.zeros(128, 784)


class ConvVae(nn.Module):
    """An encoder down to 4 x 4, a decoder that starts there."""

    def __init__(self, in_channels: int = 3, latent_dim: int = 128) -> None:
        super().__init__()
        widths = [32, 64, 128, 256]
        modules: list[nn.Module] = []
        inner = in_channels
        for width in widths:
            modules.append(
                nn.Sequential(nn.Conv2d(inner, width, 3, 2, 1), nn.BatchNorm2d(width), nn.LeakyReLU())
            )
            inner = width
        self.encoder = nn.Sequential(*modules)
        self.fc_mu = nn.Linear(256 * 16, latent_dim)
        self.fc_var = nn.Linear(256 * 16, latent_dim)
        self.decoder_input = nn.Linear(latent_dim, 256 * 16)
        self.decoder = nn.Sequential(
            *(
                nn.Sequential(nn.ConvTranspose2d(a, b, 3, 2, 1, output_padding=1), nn.LeakyReLU())
                for a, b in ((256, 128), (128, 64), (64, 32), (32, 32))
            ),
            nn.Conv2d(32, in_channels, 3, padding=1),
        )

    def forward(self, input: Tensor, **_kwargs: Any) -> list[Tensor]:
        flat = torch.flatten(self.encoder(input), start_dim=1)
        mu, log_var = self.fc_mu(flat), self.fc_var(flat)
        z = mu + torch.exp(0.5 * log_var) * torch.randn_like(log_var)
        return [self.decoder(self.decoder_input(z).view(-1, 256, 4, 4)), input, mu, log_var]


def build_conv_vae() -> tuple[nn.Module, Tensor]:
    return ConvVae(), torch.zeros(16, 3, 64, 64)


class MixerBlock(nn.Module):
    def __init__(self, dim: int, patches: int) -> None:
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(patches, 256), nn.GELU(), nn.Linear(256, patches))
        self.channels = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.channel_norm(x))


class MlpMixer(nn.Module):
    """Only the token mixing's width tells the image size: 72 x 72 with patches of 8."""

    def __init__(self, size: int = 72, patch: int = 8, dim: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.blocks = nn.Sequential(*(MixerBlock(dim, (size // patch) ** 2) for _ in range(depth)))
        self.head = nn.Linear(dim, 100)

    def forward(self, img: Tensor) -> Tensor:
        x = self.embed(img).flatten(2).transpose(1, 2)
        return self.head(self.blocks(x).mean(dim=1))


def build_mlp_mixer() -> tuple[nn.Module, Tensor]:
    return MlpMixer(), torch.zeros(16, 3, 72, 72)


class PatchViT(nn.Module):
    """Patches by reshaping, a class token, learned positions; no size is kept as an attribute."""

    def __init__(self, image: int = 48, patch: int = 6, dim: int = 192, depth: int = 3) -> None:
        super().__init__()
        count = (image // patch) ** 2
        self.patch = patch
        self.to_embedding = nn.Linear(3 * patch * patch, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.zeros(1, count + 1, dim))
        layer = nn.TransformerEncoderLayer(dim, 3, dim * 4, batch_first=True, norm_first=True)
        self.transformer = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 10)

    def forward(self, img: Tensor) -> Tensor:
        p = self.patch
        b, c, h, w = img.shape
        x = img.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, p * p * c)
        x = torch.cat([self.cls.expand(b, -1, -1), self.to_embedding(x)], dim=1) + self.pos
        return self.head(self.transformer(x)[:, 0])


def build_patch_vit() -> tuple[nn.Module, Tensor]:
    return PatchViT(), torch.zeros(16, 3, 48, 48)


class ConvViT(nn.Module):
    def __init__(self, img_size: int = 64, patch_size: int = 8, embed_dim: int = 128) -> None:
        super().__init__()
        self.img_size, self.patch_size = img_size, patch_size
        self.proj = nn.Conv2d(3, embed_dim, patch_size, patch_size)
        self.pos_embed = nn.Parameter(torch.zeros(1, (img_size // patch_size) ** 2, embed_dim))
        self.attn = nn.MultiheadAttention(embed_dim, 4, batch_first=True)
        self.fc = nn.Linear(embed_dim, 10)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.proj(pixel_values).flatten(2).transpose(1, 2) + self.pos_embed
        x = x + self.attn(x, x, x, need_weights=False)[0]
        return self.fc(x.mean(1))


def build_conv_vit() -> tuple[nn.Module, Tensor]:
    return ConvViT(), torch.zeros(16, 3, 64, 64)


class SiameseNet(nn.Module):
    """One-shot learning: two images of 105 x 105."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 64, 10),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 128, 7),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(128, 128, 4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(128, 256, 4),
            nn.ReLU(),
        )
        self.fc = nn.Sequential(nn.Linear(9216, 4096), nn.Sigmoid())
        self.out = nn.Linear(4096, 1)

    def forward_once(self, x: Tensor) -> Tensor:
        return self.fc(self.cnn(x).view(x.size(0), -1))

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return self.out(torch.abs(self.forward_once(input1) - self.forward_once(input2)))


def build_siamese_net() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return SiameseNet(), (torch.zeros(8, 1, 105, 105), torch.zeros(8, 1, 105, 105))


class ListDetector(nn.Module):
    """Images of different sizes in a list, padded to one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1))
        self.cls_logits, self.bbox_pred = nn.Conv2d(64, 9, 1), nn.Conv2d(64, 36, 1)

    def forward(self, images: list[Tensor]) -> tuple[Tensor, Tensor]:
        height = math.ceil(max(image.shape[-2] for image in images) / 32) * 32
        width = math.ceil(max(image.shape[-1] for image in images) / 32) * 32
        batch = images[0].new_zeros((len(images), 3, height, width))
        for image, padded in zip(images, batch, strict=True):
            padded[:, : image.shape[1], : image.shape[2]].copy_(image)
        features = self.body(batch)
        return self.cls_logits(features), self.bbox_pred(features)


def build_list_detector() -> tuple[nn.Module, tuple[list[Tensor]]]:
    return ListDetector(), ([torch.zeros(3, 320, 480), torch.zeros(3, 400, 300)],)


class VideoLstm(nn.Module):
    """A CNN on every frame, an LSTM over them: clips of (batch, time, channels, height, width)."""

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.lstm = nn.LSTM(64, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 101)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c, h, w = x.size()
        features = self.cnn(x.view(b * t, c, h, w)).view(b, t, -1)
        output, _ = self.lstm(features)
        return self.fc(output[:, -1])


def build_video_lstm() -> tuple[nn.Module, Tensor]:
    return VideoLstm(), torch.zeros(4, 16, 3, 112, 112)


class DeepQNetwork(nn.Module):
    """84 x 84, four frames, scaled from bytes in the forward."""

    def __init__(self, actions: int = 6) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, actions),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x / 255.0)


def build_deep_q_network() -> tuple[nn.Module, Tensor]:
    return DeepQNetwork(), torch.zeros(32, 4, 84, 84)
