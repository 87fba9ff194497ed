"""Inputs that nobody gave: what models state, what their layers take, and the guesses tried in turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tclint
from tclint.errors import TargetError
from tclint.graph import Graph


def input_of(graph: Graph) -> tuple[tuple[int, ...], str]:
    (spec,) = graph.inputs
    assert any("input" in assumption.what for assumption in graph.assumptions), (
        "an inferred input must be said"
    )
    return spec.shape, spec.dtype


class Flattening(nn.Module):
    """Takes images of one size only, which nothing states."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.fc = nn.Linear(4 * size * size, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).flatten(1))


@pytest.mark.parametrize("size", [28, 32, 64, 224, 299])
def test_image_sizes_are_tried_in_turn(size: int) -> None:
    graph = tclint.trace(lambda: Flattening(size))
    assert input_of(graph) == ((8, 3, size, size), "float32")


class StatesItsSize(Flattening):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.img_size = (size, size)


def test_a_stated_image_size_comes_first() -> None:
    assert input_of(tclint.trace(lambda: StatesItsSize(200))) == ((8, 3, 200, 200), "float32")


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return self.fc(x).view(batch * length, width)


def test_a_linear_first_layer_may_take_sequences() -> None:
    assert input_of(tclint.trace(Sequence)) == ((8, 128, 6), "float32")


class ShortContext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(block_size=20)
        self.tokens, self.positions = nn.Embedding(50, 8), nn.Parameter(torch.zeros(20, 8))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.positions[: tokens.shape[1]]


def test_sequences_are_no_longer_than_the_model_allows() -> None:
    assert input_of(tclint.trace(ShortContext)) == ((8, 20), "int64")


def test_the_dtype_of_the_first_layer() -> None:
    graph = tclint.trace(lambda: nn.Sequential(nn.Conv1d(2, 4, 3)).to(torch.bfloat16))
    assert input_of(graph) == ((8, 2, 1024), "bfloat16")


class Spectrogram(nn.Module):
    """A waveform, though its first layer is recurrent."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(33, 5, batch_first=True)

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = torch.stft(wave, 64, window=torch.hann_window(64), return_complex=True).abs()
        return self.lstm(spectrum.transpose(1, 2))[0]


def test_waveforms_in_front_of_a_recurrent_layer() -> None:
    assert input_of(tclint.trace(Spectrogram)) == ((8, 16384), "float32")


class LikeTimm(Flattening):
    def __init__(self) -> None:
        super().__init__(12)
        self.default_cfg = {"input_size": (3, 12, 12), "num_classes": 10}


def test_default_cfg() -> None:
    graph = tclint.trace(LikeTimm)
    assert input_of(graph) == ((8, 3, 12, 12), "float32")
    assert "default_cfg" in graph.assumptions[0].what


class LikeTransformers(nn.Module):
    main_input_name = "pixel_values"

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_channels=1, image_size=30, is_encoder_decoder=False)
        self.conv = nn.Conv2d(1, 2, 30)

    def forward(self, input_ids: Any = None, pixel_values: Any = None) -> Tensor:
        assert input_ids is None
        return self.conv(pixel_values).reshape(-1, 2)


def test_main_input_name() -> None:
    graph = tclint.trace(LikeTransformers)
    assert input_of(graph) == ((8, 1, 30, 30), "float32")
    assert graph.inputs[0].input_name == "pixel_values"
    assert "main_input_name" in graph.assumptions[0].what


class LikeLightning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.example_input_array = torch.zeros(3, 7, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def test_example_input_array() -> None:
    assert input_of(tclint.trace(LikeLightning)) == ((3, 7, 4), "float32")


class Impossible(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(self.fc(x).view(3, 5, 7), dim=-1)


def test_the_first_guess_is_what_the_error_is_about() -> None:
    with pytest.raises(TargetError, match=r"float32\[8,4\]"):
        tclint.trace(Impossible)
