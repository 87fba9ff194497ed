"""A price knows what it rests on: what nothing states, and what data decide, is a guess with a range."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import tclint
from tclint.tracing.inputs.guesses.inference import infer_inputs
from tclint.tracing.inputs.guesses.other_sizes import other_sizes


class Pictures(nn.Module):
    """Takes pictures of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 3, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).mean((2, 3)))


class Flattened(nn.Module):
    """Takes pictures of one size, which its layers state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8 * 224 * 224, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).flatten(1))


class Speaks(nn.Module):
    """Makes 16 samples of each frame, of which there may be any number."""

    def __init__(self) -> None:
        super().__init__()
        self.take = nn.Conv1d(80, 256, 7, padding=3)
        self.grow = nn.ConvTranspose1d(256, 64, 32, stride=16, padding=8)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        return self.grow(self.take(mel))


class Folds(nn.Module):
    """Reads a signal of one channel, and the frames beside it, by periods of four."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Conv1d(80, 64, 5, padding=2)
        self.folded = nn.Conv2d(1, 64, (5, 1), padding=(2, 0))

    def forward(self, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        mel, sound = data
        batch, samples = sound.shape
        folded = self.folded(sound.view(batch, 1, samples // 4, 4))
        return folded.mean() + self.frames(mel).mean()


class Enlarges(nn.Module):
    """Makes pictures four times as high as those that it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.take = nn.Conv2d(3, 48, 3, padding=1)
        self.grow = nn.PixelShuffle(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.grow(self.take(x))


class Words(nn.Module):
    def __init__(self, **stated: int) -> None:
        super().__init__()
        self.__dict__.update(stated)
        self.embed = nn.Embedding(8000, 512)
        self.head = nn.Linear(512, 8000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(tokens))


class Points(nn.Module):
    """Compares the points whose score is high, all with all, as a matcher of key points does."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(64, 1)
        self.match = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.match(x[torch.nonzero(self.score(x)[:, 0] > 0.5)[:, 0]])
        return (chosen @ chosen.T).softmax(-1)


class Converging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            y = self.step(x)
            if (y - x).abs().max() < 1e-3:
                break
            x = y
        return x


class SmallDetector(nn.Module):
    """Takes no picture under 300x300, and is taken for a detector, which customarily gets larger ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 3, padding=1)
        self.far = nn.AvgPool2d(300)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.far(y).mean() + y.mean((2, 3))


class Attends(nn.Module):
    """Sums for each node what its edges lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(1000, 512)

    def forward(self, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        nodes, edges = data
        y = self.project(nodes)
        return torch.zeros_like(y).index_add(0, edges[1], y.index_select(0, edges[0]))


class Mixes(nn.Module):
    """Adds to each example the one that its label names, and those that score best."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 32)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = self.project(x)
        best = y[y.mean(1).topk(3).indices]
        return y + y[labels] + best.mean(0)


def _entry(model: nn.Module, *inputs: str) -> tuple[dict[str, object], tclint.Report]:
    report = tclint.check(model, tclint.Settings(gpus=("a100",), inputs=inputs))
    entry: dict[str, object] = json.loads(tclint.render(report, "json"))["entries"][0]
    return entry, report


def _doubts(entry: dict[str, object]) -> list[str]:
    assumptions = entry["assumptions"]
    assert isinstance(assumptions, list)
    return [each["what"] for each in assumptions if each["doubtful"]]


def test_a_size_that_nothing_states_opens_the_report_with_a_range() -> None:
    entry, report = _entry(Pictures())
    (doubt,) = _doubts(entry)
    assert "nothing states its height and width" in doubt
    assert "at 32x32" in doubt
    assert "at 512x512" in doubt
    metrics = report.entries[0].metrics["a100-sxm4-80gb"]
    assert metrics.step_time_range_us is not None
    shortest, longest = metrics.step_time_range_us
    assert shortest < metrics.step_time_us < longest
    text = tclint.render(report, "text")
    assert text.index("every figure rests on a guess") < text.index("predicted step")
    assert "; 1 model priced on a guess" in text
    assert "+-" not in next(line for line in text.splitlines() if "a100-sxm4-80gb  " in line)


def test_a_length_that_no_layer_states_is_a_guess() -> None:
    (doubt,) = _doubts(_entry(Speaks())[0])
    assert "mel = float32[1024,80,32]" in doubt
    assert "nothing states its length: the step takes" in doubt
    assert "at 128" in doubt


def test_a_signal_of_one_channel_may_be_seconds_of_sound() -> None:
    (doubt,) = _doubts(_entry(Folds())[0])
    assert "--input 'data[1]=float32[1024,80]'" in doubt
    assert "at 20, " in doubt
    assert "at 64000, " in doubt


def test_nodes_of_a_graph_are_no_batch() -> None:
    entry, _ = _entry(Attends())
    (doubt,) = _doubts(entry)
    assert "data = (float32[2708,1000], int64[2,10556])" in doubt
    assert "nothing states how large its graphs are: the step takes" in doubt


def test_examples_that_are_mixed_are_no_nodes() -> None:
    inputs = tclint.trace(Mixes()).inputs
    assert [tensor.shape for tensor in inputs] == [(8, 64), (8,)]


def test_a_width_beside_a_stated_length_is_no_length() -> None:
    class Attention(nn.Module):
        def __init__(self, **stated: int) -> None:
            super().__init__()
            self.__dict__.update(stated)
            self.attend = nn.MultiheadAttention(64, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attend(x, x, x)[0]

    stated = Attention(max_seq_len=96)
    inputs = infer_inputs(stated)
    assert [value.shape for value in inputs.args] == [(8, 96, 64)]
    assert other_sizes(inputs, stated) is None


def test_what_enlarges_pictures_may_take_small_ones() -> None:
    (doubt,) = _doubts(_entry(Enlarges())[0])
    assert "at 24x24" in doubt
    assert "at 128x128" not in doubt  # less than the 224x224 that was guessed


def test_a_customary_size_is_a_guess_where_small_pictures_do_not_fit() -> None:
    entry, _ = _entry(SmallDetector())
    [doubt] = _doubts(entry)
    assert "float32[512,3,640,640]" in doubt
    assert "at 1280x1280" in doubt
    assert "nothing states its height and width: the step takes" in doubt
    assert "at 384x384" in doubt


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Flattened(), ()),
        (Pictures(), ("float32[8,3,224,224]",)),
        (Words(block_size=128), ()),
    ],
    ids=["the layers take no other", "given", "stated"],
)
def test_what_is_stated_is_no_guess(model: nn.Module, inputs: tuple[str, ...]) -> None:
    entry, report = _entry(model, *inputs)
    assert not _doubts(entry)
    assert report.entries[0].metrics["a100-sxm4-80gb"].step_time_range_us is None


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (Words(), (), "at a length of 1024"),
        (Points(), ("float32[4096,64]",), "if 1 in 100 is selected"),
        (Converging(), ("float32[64,64]",), "loops end at their first chance"),
    ],
)
def test_lengths_and_data_that_decide_are_guesses(
    model: nn.Module, inputs: tuple[str, ...], said: str
) -> None:
    (doubt,) = _doubts(_entry(model, *inputs)[0])
    assert said in doubt
