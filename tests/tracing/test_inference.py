"""Inputs that nobody gave: what is inferred from a model, and that the report says so."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import tclint
from tclint.core.errors import TargetError
from tclint.tracing.inputs.given import described, given_inputs, with_batch


class Encoder(nn.Module):
    """A module with a forward that is given."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.forward = forward.__get__(self)  # type: ignore[method-assign]


def tokens_and_mask(self: Any, input_ids: Any, attention_mask: Any) -> Any:
    return self.fc(self.emb(input_ids)) * attention_mask[..., None]


def denoise(self: Any, x: Any, timesteps: Any) -> Any:
    return self.conv(x) + self.emb(timesteps)[:, :, None, None]


def rate(self: Any, user: Any, item: Any) -> Any:
    return (self.users(user) * self.items(item)).sum(-1)


def pack(self: Any, features: Any, lengths: Any) -> Any:
    packed = nn.utils.rnn.pack_padded_sequence(features, lengths, batch_first=True, enforce_sorted=False)
    return self.rnn(packed)[0].data


def two(self: Any, left: Any, right: Any) -> Any:
    return self.fc(left) - self.fc(right)


def sized(self: Any, image: Any) -> Any:
    assert image.shape[-1] == 96
    return self.conv(image)


def few_words(self: Any, ids: Any) -> Any:
    return self.emb(ids) + self.positions[: ids.shape[1]]


def flattened(self: Any, x: Any) -> Any:
    return self.fc(self.pool(self.conv(x)).flatten(1))


def reshaped(self: Any, x: Any) -> Any:
    return self.fc(self.pool(self.conv(x)).view(-1, 4 * 15 * 15))


def mixed(self: Any, img: Any) -> Any:
    return self.tokens(self.patches(img).flatten(2))


def patches_by_reshape(self: Any, img: Any) -> Any:
    b, c, h, w = img.shape
    x = img.reshape(b, c, h // 6, 6, w // 6, 6).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, 108)
    return torch.cat([self.cls.expand(b, -1, -1), self.fc(x)], dim=1) + self.positions


def features_last(self: Any, series: Any) -> Any:
    return self.conv(series.transpose(1, 2))


def attended(self: Any, x: Any) -> Any:
    return self.encoder(self.fc(x))


def time_first(self: Any, words: Any) -> Any:
    return self.rnn(self.emb(words))[0]


def clip(self: Any, frames: Any) -> Any:
    b, t, c, h, w = frames.shape
    return self.conv(frames.view(b * t, c, h, w))


def second_layer(self: Any, observation: Any) -> Any:
    return self.actor(observation)


def optional(self: Any, ids: Any, pixels: Any = None) -> Any:
    return self.emb(ids).mean(1) + self.conv(pixels).mean((2, 3))


def checked(self: Any, x: Any) -> Any:
    assert x.size(1) == 3
    assert x.shape[-1] == 160
    return self.conv(x)


def bare_weight(self: Any, x: Any, adjacency: Any) -> Any:
    return torch.mm(adjacency, torch.mm(x, self.weight))


def stacked(self: Any, images: Any) -> Any:
    return self.conv(torch.stack(images))


def masked_frames(self: Any, spectrogram: Any, mask: Any) -> Any:
    frames = self.conv(spectrogram.unsqueeze(1)).mean(1)
    return self.fc(frames).masked_fill(mask[:, ::2, None], 0.0)


def two_frames(self: Any, frames: Any) -> Any:
    return self.conv(frames[:, :3]) - self.conv(frames[:, 3:])


def nodes_and_edges(self: Any, graph: Any) -> Any:
    nodes, edges = graph
    return self.fc(nodes).index_select(0, edges.mT[0])


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.words = nn.Embedding(10, 4)

    def noise_in(self, noisy: Any, context: Any) -> Any:
        return self.first(noisy) + self.words(context)[:, :, None, None]


def by_another_method(self: Any, x: Any, c: Any) -> Any:
    return ((self.net.noise_in(x, c) - x.mean()) ** 2).mean()


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.keys = nn.Linear(4, 4), nn.Linear(6, 4)

    def forward(self, x: Any, context: Any) -> Any:
        query, keys = self.query(x.flatten(2).transpose(1, 2)), self.keys(context)
        made = nn.functional.scaled_dot_product_attention(query, keys, keys)
        return made.transpose(1, 2).reshape(x.shape)


def rows_of_layers(self: Any, x: Any, ctx: Any) -> Any:
    x = self.first(x)
    for conv, attention in self.rows:
        x = attention(conv(x), ctx)
    return x


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, frames: Any, padded: Any = None) -> Any:
        assert padded is None
        return self.conv(frames).mean((2, 3))


def heard_and_seen(self: Any, input_values: Any, frames: Any = None, padded: Any = None) -> Any:
    heard, seen = self.conv(input_values).mean(-1), None
    seen = self.eyes(
        frames=frames,
        padded=padded,
    )
    return heard + seen


def each(layers: Any, x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


def layers_by_a_helper(self: Any, x: Any) -> Any:
    return self.head(each(self.blocks, x))


def halves(x: Any) -> Any:
    yield from x.chunk(2, dim=-1)


def parts_by_a_generator(self: Any, x: Any) -> Any:
    return self.head(self.fc(torch.cat(list(halves(x)), dim=-1)))


def mapped(value: Any, function: Any) -> Any:
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    if isinstance(value, list):
        return [mapped(item, function) for item in value]
    return mapped(tuple(value), function) if isinstance(value, tuple) else function(value)


def mapped_by_a_helper(self: Any, x: Any) -> Any:
    return self.fc(mapped(x, torch.relu))


class OwnLstm(nn.LSTM):
    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return super().forward(x)[0]


def embedded(t: Any, width: int) -> Any:
    angles = t[:, None].float() * torch.arange(width // 2)[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def time_by_a_helper(self: Any, x: Any, t: Any) -> Any:
    return self.conv(x) + self.fc(embedded(t, 16))[:, :, None, None]


def spectrogram(self: Any, sound: Any) -> Any:
    return self.conv(torch.stft(sound, 64, 32, window=self.window, return_complex=True).abs())


MODELS: dict[str, tuple[Callable[[], nn.Module], list[tuple[str, tuple[int, ...]]]]] = {
    "image": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(1)), [("float32", (8, 1, 224, 224))]),
    "digits": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 5), nn.Flatten(), nn.Linear(4 * 24 * 24, 10)),
        [("float32", (8, 1, 28, 28))],
    ),
    "rearranged": (
        lambda: nn.Sequential(nn.PixelUnshuffle(4), nn.Conv2d(48, 8, 1)),
        [("float32", (8, 3, 224, 224))],
    ),
    "stated": (lambda: Encoder(sized, conv=nn.Conv2d(3, 4, 3), img_size=96), [("float32", (8, 3, 96, 96))]),
    "length": (
        lambda: Encoder(few_words, emb=nn.Embedding(9, 4), block_size=32, positions=torch.zeros(32, 4)),
        [("int64", (8, 32))],
    ),
    "tokens and a mask": (
        lambda: Encoder(tokens_and_mask, emb=nn.Embedding(9, 4), fc=nn.Linear(4, 4)),
        [("int64", (8, 128)), ("bool", (8, 128))],
    ),
    "diffusion": (
        lambda: Encoder(denoise, conv=nn.Conv2d(3, 4, 3), emb=nn.Embedding(1000, 4)),
        [("float32", (8, 3, 224, 224)), ("int64", (8,))],
    ),
    "layers given to a function": (
        lambda: Encoder(layers_by_a_helper, head=nn.Linear(32, 2), blocks=nn.ModuleList([nn.Linear(16, 32)])),
        [("float32", (8, 16))],
    ),
    "parts by a generator": (
        lambda: Encoder(parts_by_a_generator, head=nn.Linear(7, 3), fc=nn.Linear(16, 7)),
        [("float32", (8, 16))],
    ),
    "a function that calls itself": (
        lambda: Encoder(mapped_by_a_helper, fc=nn.Linear(16, 7)),
        [("float32", (8, 16))],
    ),
    "an inherited layer of PyTorch": (
        lambda: OwnLstm(16, 4, batch_first=True),
        [("float32", (8, 128, 16))],
    ),
    "time embedded by a function": (
        lambda: Encoder(time_by_a_helper, conv=nn.Conv2d(3, 4, 3), fc=nn.Linear(16, 4)),
        [("float32", (8, 3, 224, 224)), ("int64", (8,))],
    ),
    "recommender": (
        lambda: Encoder(rate, users=nn.Embedding(9, 4), items=nn.Embedding(9, 4)),
        [("int64", (8,)), ("int64", (8,))],
    ),
    "lengths": (
        lambda: Encoder(pack, rnn=nn.LSTM(4, 5, batch_first=True)),
        [("float32", (8, 128, 4)), ("int64", (8,))],
    ),
    "unpacked": (
        lambda: Encoder(nodes_and_edges, fc=nn.Linear(40, 3)),
        [("float32", (8, 40)), ("int64", (8, 40))],
    ),
    "siamese": (lambda: Encoder(two, fc=nn.Linear(4, 2)), [("float32", (8, 4)), ("float32", (8, 4))]),
    "a flattened map": (
        lambda: Encoder(
            flattened, conv=nn.Conv2d(3, 4, 5), pool=nn.MaxPool2d(2), fc=nn.Linear(4 * 30 * 30, 2)
        ),
        [("float32", (8, 3, 64, 64))],
    ),
    "a map that a view would spread over more rows": (
        lambda: Encoder(
            reshaped, conv=nn.Conv2d(1, 4, 3), pool=nn.MaxPool2d(2), fc=nn.Linear(4 * 15 * 15, 2)
        ),
        [("float32", (8, 1, 32, 32))],
    ),
    "layers over patches": (
        lambda: Encoder(mixed, patches=nn.Conv2d(3, 4, 8, 8), tokens=nn.Linear(81, 5)),
        [("float32", (8, 3, 72, 72))],
    ),
    "patches by reshaping": (
        lambda: Encoder(
            patches_by_reshape,
            fc=nn.Linear(108, 4),
            cls=nn.Parameter(torch.zeros(1, 1, 4)),
            positions=nn.Parameter(torch.zeros(1, 65, 4)),
        ),
        [("float32", (8, 3, 48, 48))],
    ),
    "features last": (lambda: Encoder(features_last, conv=nn.Conv1d(6, 4, 3)), [("float32", (8, 1024, 6))]),
    "a batch for attention": (
        lambda: Encoder(
            attended,
            fc=nn.Linear(5, 8),
            encoder=nn.TransformerEncoderLayer(8, 2, 8, batch_first=True),
        ),
        [("float32", (8, 128, 5))],
    ),
    "time first": (
        lambda: Encoder(time_first, emb=nn.Embedding(9, 4), rnn=nn.GRU(4, 4)),
        [("int64", (128, 8))],
    ),
    "clips": (lambda: Encoder(clip, conv=nn.Conv2d(3, 4, 3)), [("float32", (8, 16, 3, 224, 224))]),
    "the layer that takes it": (
        lambda: Encoder(second_layer, critic=nn.Linear(23, 4), actor=nn.Linear(17, 4)),
        [("float32", (8, 17))],
    ),
    "an argument that is not optional after all": (
        lambda: Encoder(optional, emb=nn.Embedding(9, 4), conv=nn.Conv2d(3, 4, 3)),
        [("int64", (8, 128)), ("float32", (8, 3, 224, 224))],
    ),
    "assertions": (
        lambda: Encoder(checked, conv=nn.LazyConv2d(4, 3)),
        [("float32", (8, 3, 224, 160))],
    ),
    "bare weights": (
        lambda: Encoder(bare_weight, weight=nn.Parameter(torch.zeros(6, 4))),
        [("float32", (8, 6)), ("float32", (8, 8))],
    ),
    "a mask of steps, not of an image": (
        lambda: Encoder(masked_frames, conv=nn.Conv2d(1, 2, 3, 2, 1), fc=nn.Linear(40, 2)),
        [("float32", (8, 224, 80)), ("bool", (8, 224))],
    ),
    "the optional argument that a layer could not do without": (
        lambda: Encoder(
            heard_and_seen,
            conv=nn.Conv1d(1, 4, 7),
            eyes=Pooled(),
            main_input_name="input_values",
            config=SimpleNamespace(image_size=64),
        ),
        [("float32", (8, 1, 16000)), ("float32", (8, 3, 64, 64))],
    ),
    "frames on top of each other": (
        lambda: Encoder(two_frames, conv=nn.Conv2d(3, 4, 3)),
        [("float32", (8, 6, 224, 224))],
    ),
    "a method that is not called forward": (
        lambda: Encoder(by_another_method, net=Denoiser()),
        [("float32", (8, 1, 224, 224)), ("int64", (8,))],
    ),
    "layers in rows": (
        lambda: Encoder(
            rows_of_layers,
            first=nn.Conv2d(3, 4, 3),
            rows=nn.ModuleList(nn.ModuleList([nn.Conv2d(4, 4, 1), Attending()]) for _ in range(2)),
        ),
        [("float32", (8, 3, 224, 224)), ("float32", (8, 128, 6))],
    ),
    "a generator": (
        lambda: nn.Sequential(nn.ConvTranspose2d(16, 8, 4, 1, 0), nn.ConvTranspose2d(8, 3, 4, 2, 1)),
        [("float32", (8, 16, 1, 1))],
    ),
    "a list": (
        lambda: Encoder(stacked, conv=nn.Conv2d(3, 4, 3)),
        [("float32", (3, 224, 224)), ("float32", (3, 224, 224))],
    ),
    "config of transformers": (
        lambda: Encoder(
            lambda self, pixel_values: self.conv(pixel_values),
            conv=nn.Conv2d(3, 4, 16),
            main_input_name="pixel_values",
            config=SimpleNamespace(vision_config=SimpleNamespace(image_size={"height": 64, "width": 32})),
        ),
        [("float32", (8, 3, 64, 32))],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_inferred(name: str) -> None:
    build, expected = MODELS[name]
    graph = tclint.trace(build)
    assert [(spec.dtype, spec.shape) for spec in graph.inputs] == expected
    assert graph.metadata["inputs_from"] == "inferred"
    said = graph.assumptions[0].what
    for dtype, shape in expected:
        assert f"{dtype}[{','.join(map(str, shape))}]" in said


def test_what_cannot_be_inferred_is_said() -> None:
    with pytest.raises(TargetError, match="no layer of it tells the shape"):
        tclint.trace(nn.ReLU)


@dataclasses.dataclass
class Batch:
    images: list[torch.Tensor]
    ids: torch.Tensor
    size: int = 3


def nested(self: Any, batch: Any, more: Any) -> Any:
    return self.fc(batch.ids) + sum(self.fc(image) for image in batch.images) + self.fc(more["a"][0][1])


def test_nested_inputs() -> None:
    batch = Batch([torch.zeros(2, 4), torch.zeros(2, 4)], torch.zeros(2, 4))
    more = OrderedDict(a=[(torch.zeros(1), torch.zeros(2, 4))])
    graph = tclint.trace(lambda: Encoder(nested, fc=nn.Linear(4, 3)), inputs=(batch, dict(more)))
    named = [spec.input_name for spec in graph.inputs]
    assert named == ["batch.images[0]", "batch.images[1]", "batch.ids", "more['a'][0][0]", "more['a'][0][1]"]


def test_dataclasses_are_described_and_resized() -> None:
    batch = Batch([torch.zeros(2, 4)], torch.zeros(2, dtype=torch.int64))
    assert described(batch) == "Batch(images=(float32[2,4]), ids=int64[2], size=3)"
    (resized,) = with_batch(given_inputs(batch, "test"), 16).args
    assert described(resized) == "Batch(images=(float32[16,4]), ids=int64[16], size=3)"


def test_a_list_of_images() -> None:
    def detect(self: Any, images: list[torch.Tensor]) -> Any:
        return [self.conv(image[None]) for image in images]

    images = [torch.zeros(3, 20, 30), torch.zeros(3, 40, 50)]
    graph = tclint.trace(lambda: Encoder(detect, conv=nn.Conv2d(3, 4, 3)), inputs=(images,))
    assert [op.outputs[0].shape for op in graph.ops if op.name == "conv2d"] == [
        (1, 4, 18, 28),
        (1, 4, 38, 48),
    ]
