"""Inputs beside the first: steps and contexts of diffusion, lengths; and pictures without convolutions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tclint
from tclint.tracing.inputs.given import inferred
from tclint.tracing.inputs.guesses.project_sizes import ProjectSizes, StatedSize


def _shapes(model: Any) -> dict[str | None, tuple[int, ...]]:
    return {spec.input_name: spec.shape for spec in tclint.trace(model).inputs}


class _Denoiser(nn.Module):
    """Without a context's width stated, the forward can do without the context."""

    def __init__(self, image_size: int = 32, in_channels: int = 4, context_dim: int | None = 48) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1)
        self.read = nn.Linear(context_dim or 1, 16)

    def forward(self, x: torch.Tensor, timesteps: Any = None, context: Any = None) -> torch.Tensor:
        x = self.stem(x) * timesteps.float()[:, None, None, None]
        return x if context is None else x + self.read(context).mean(1)[:, :, None, None]


def test_a_model_of_diffusion_is_told_the_step_and_the_context_whose_width_it_states() -> None:
    assert _shapes(_Denoiser) == {"x": (8, 4, 32, 32), "timesteps": (8,), "context": (8, 77, 48)}
    assert _shapes(lambda: _Denoiser(context_dim=None)) == {"x": (8, 4, 32, 32), "timesteps": (8,)}


def test_a_step_is_a_number_where_a_layer_reads_what_was_made_of_it() -> None:
    class Sines(nn.Module):
        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return (t[:, None] * torch.arange(16, device=t.device)[None]).sin()

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 3)
            self.steps = nn.Sequential(Sines(), nn.Linear(16, 16))

        def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            return self.stem(x) + self.steps(time)[:, :, None, None]

    assert _shapes(Denoiser())["time"] == (8,)


class _Steps(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.read = nn.Linear(width, 16)

    def forward(self, step: torch.Tensor) -> torch.Tensor:
        places = torch.arange(self.read.in_features // 2, device=step.device)
        angles = step[:, None].float() * places[None]
        return self.read(torch.cat([angles.cos(), angles.sin()], dim=-1))


class _Interval(nn.Module):
    """Goes from one step to another."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.steps, self.starts = _Steps(32), _Steps(width)

    def forward(self, x: torch.Tensor, t: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        return self.stem(x) + (self.steps(t) + self.starts(r))[:, :, None, None]


def test_what_goes_the_way_of_a_step_is_one() -> None:
    shapes = _shapes(_Interval(32))
    assert (shapes["t"], shapes["r"]) == ((8,), (8,))


def test_pictures_of_a_stated_size_need_no_convolution() -> None:
    class Patches(nn.Module):
        def __init__(self, image_size: int) -> None:
            super().__init__()
            self.cut, self.norm = nn.Unfold(8, stride=8), nn.LayerNorm(192)

        def forward(self, img: torch.Tensor) -> torch.Tensor:
            return self.norm(self.cut(img).transpose(1, 2))

    assert _shapes(lambda: Patches(96)) == {"img": (8, 3, 96, 96)}


@pytest.mark.parametrize(("batch_first", "shape"), [(False, (128, 8)), (True, (8, 128))])
def test_words_with_lengths_have_the_order_of_the_layers_that_pack_them(
    batch_first: bool, shape: tuple[int, int]
) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.rnn = nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=batch_first)

        def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(self.table(words), lengths, batch_first=batch_first)
            output: torch.Tensor = self.rnn(packed)[0].data
            return output

    assert _shapes(Encoder()) == {"words": shape, "lengths": (8,)}


def test_lengths_agree_with_a_length_that_a_script_states() -> None:
    words = torch.empty((8, 128), dtype=torch.int64, device="meta")
    guess = inferred((words, torch.full((8,), 128)), {}, "inputs")
    sized = ProjectSizes(length=StatedSize((640,), "train.py says")).applied(guess, "stated")
    assert sized is not None
    assert sized.args[0].shape == (8, 640)
    assert sized.args[1].tolist() == [640] * 8


def test_a_mask_is_as_long_as_a_script_states_that_words_are() -> None:
    words = torch.empty((8, 128), dtype=torch.int64, device="meta")
    beside = torch.ones((8, 3), dtype=torch.int64)
    sizes = ProjectSizes(length=StatedSize((640,), "train.py says"))
    sized = sizes.applied(inferred((words, torch.ones((8, 128))), {}, "inputs"), "stated")
    assert sized is not None
    assert sized.args[1].equal(torch.ones((8, 640)))
    assert not sized.is_partly_made_up
    made_up = sizes.applied(inferred((words, beside, torch.ones(8)), {}, "inputs"), "stated")
    assert made_up is not None
    assert made_up.is_partly_made_up
    assert "nothing states int64[8,3]; --input" in made_up.assumptions[-1].what


def test_what_is_split_is_as_wide_as_its_parts() -> None:
    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.points, self.views = nn.Linear(63, 8), nn.Linear(8 + 27, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            points, views = x.split([63, 27], dim=-1)
            return self.views(torch.cat([self.points(points), views], -1))

    assert _shapes(Field()) == {"x": (8, 90)}


def test_separation_of_speech_takes_three_seconds() -> None:
    class TinyTasNet(nn.Sequential):
        pass

    assert tclint.trace(TinyTasNet(nn.Conv1d(1, 8, 16, 8))).inputs[0].shape == (8, 1, 48_000)
