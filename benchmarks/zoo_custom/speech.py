"""Speech and audio: spectrogram front ends, CTC, complex numbers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MelFrontEnd(nn.Module):
    def __init__(self, n_fft: int = 400, hop: int = 160, mels: int = 80) -> None:
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("filters", self._filters(n_fft // 2 + 1, mels))

    @staticmethod
    def _filters(bins: int, mels: int) -> Tensor:
        top = 2595 * math.log10(1 + 8000 / 700)
        centres = 700 * (10 ** (torch.linspace(0, top, mels + 2) / 2595) - 1)
        slopes = centres[None, :] - torch.linspace(0, 8000, bins)[:, None]
        widths = centres[1:] - centres[:-1]
        return torch.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]).clamp(min=0)

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log(spectrum.abs().pow(2).transpose(1, 2) @ self.filters + 1e-6)


class DeepSpeech(nn.Module):
    def __init__(self, symbols: int = 29) -> None:
        super().__init__()
        self.front = MelFrontEnd()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, inplace=True)
        )
        self.rnns = nn.ModuleList(nn.GRU(1280 if i == 0 else 512, 256, bidirectional=True) for i in range(2))
        self.head = nn.Linear(512, symbols)

    def forward(self, wave: Tensor, targets: Tensor) -> Tensor:
        x = self.conv(self.front(wave).transpose(1, 2).unsqueeze(1))
        x = x.flatten(1, 2).permute(2, 0, 1)
        for rnn in self.rnns:
            x, _ = rnn(x)
        log_probabilities = self.head(x).log_softmax(-1)
        lengths = torch.full((x.shape[1],), x.shape[0], dtype=torch.long)
        return F.ctc_loss(
            log_probabilities, targets, lengths, torch.full((x.shape[1],), targets.shape[1], dtype=torch.long)
        )


def build_ctc_speech_recognizer() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return DeepSpeech(), (torch.zeros(2, 16000), torch.ones(2, 12, dtype=torch.long))


class WaveNetBlock(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.padding = dilation
        self.gate = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
        )
        self.out = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        filtered, gate = self.gate(F.pad(x, (self.padding, 0))).chunk(2, dim=1)
        residual, skip = self.out(filtered.tanh() * gate.sigmoid()).chunk(2, dim=1)
        return (x + residual) * math.sqrt(0.5), skip


class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, 64, 1)
        self.blocks = nn.ModuleList([WaveNetBlock(64, 2**power) for _ in range(2) for power in range(6)])
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(64, 256, 1))

    def forward(self, wave: Tensor) -> Tensor:
        x, total = self.stem(wave), 0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        return self.head(total)


def build_wavenet() -> tuple[nn.Module, Tensor]:
    return WaveNet(), torch.zeros(2, 1, 4000)


class PhaseVocoder(nn.Module):
    """Iterated STFT and inverse STFT on complex tensors (Griffin-Lim), then a learned mask."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = nn.LSTM(257, 257, batch_first=True)
        self.register_buffer("window", torch.hann_window(512))

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = torch.stft(wave, 512, 128, window=self.window, return_complex=True)
        magnitude = spectrum.abs() * self.mask(spectrum.abs().transpose(1, 2))[0].sigmoid().transpose(1, 2)
        phase = torch.angle(spectrum)
        for _ in range(3):
            wave = torch.istft(torch.polar(magnitude, phase), 512, 128, window=self.window)
            phase = torch.angle(torch.stft(wave, 512, 128, window=self.window, return_complex=True))
        return wave


def build_griffin_lim() -> tuple[nn.Module, Tensor]:
    return PhaseVocoder(), torch.zeros(2, 8192)


class FourierOperator(nn.Module):
    """Spectral convolution with complex weights (Fourier neural operator)."""

    def __init__(self, width: int = 32, modes: int = 12) -> None:
        super().__init__()
        self.modes = modes
        self.lift, self.head = nn.Linear(3, width), nn.Linear(width, 1)
        self.weight = nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width)
        self.local = nn.Conv2d(width, width, 1)

    def forward(self, field: Tensor) -> Tensor:
        x = self.lift(field).permute(0, 3, 1, 2)
        spectrum = torch.fft.rfft2(x)
        mixed = torch.zeros_like(spectrum)
        low = spectrum[:, :, : self.modes, : self.modes]
        mixed[:, :, : self.modes, : self.modes] = torch.einsum("bixy,ioxy->boxy", low, self.weight)
        x = F.gelu(torch.fft.irfft2(mixed, s=x.shape[-2:]) + self.local(x))
        return self.head(x.permute(0, 2, 3, 1))


def build_fourier_neural_operator() -> tuple[nn.Module, Tensor]:
    return FourierOperator(), torch.zeros(4, 64, 64, 3)


class RelativeAttention(nn.Module):
    """Transformer-XL relative positions with the shift trick, as Conformer uses them."""

    def __init__(self, size: int = 144, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.position, self.out = (
            nn.Linear(size, 3 * size),
            nn.Linear(size, size, bias=False),
            nn.Linear(size, size),
        )
        self.u, self.v = (nn.Parameter(torch.zeros(heads, size // heads)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        query, key, value = self.qkv(x).view(batch, length, 3, self.heads, -1).unbind(2)
        offsets = torch.arange(length - 1, -length, -1.0, device=x.device)
        angles = offsets[:, None] / 10000 ** (torch.arange(0, size, 2, device=x.device) / size)
        table = self.position(torch.cat([angles.sin(), angles.cos()], -1)).view(
            2 * length - 1, self.heads, -1
        )
        content = torch.einsum("bqhd,bkhd->bhqk", query + self.u, key)
        relative = torch.einsum("bqhd,khd->bhqk", query + self.v, table)
        relative = F.pad(relative, (1, 0)).view(batch, self.heads, 2 * length, length)[:, :, 1:]
        relative = relative.view(batch, self.heads, length, 2 * length - 1)[..., :length]
        weights = ((content + relative) / (size // self.heads) ** 0.5).softmax(-1)
        return self.out(torch.einsum("bhqk,bkhd->bqhd", weights, value).reshape(batch, length, size))


def build_conformer_attention() -> tuple[nn.Module, Tensor]:
    return RelativeAttention(), torch.zeros(2, 50, 144)
