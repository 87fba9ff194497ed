"""Habits of models in the wild: how they rearrange, spread, scan and import."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from versions import since_2_5

import tclint
from tclint.core.errors import TargetError
from tclint.graph.ops import Graph


class Rearrange(nn.Module):
    """As einops' layer presents itself; patches of images, whichever pattern it is given."""

    def __init__(self, pattern: str, **axes_lengths: int) -> None:
        super().__init__()
        self.pattern, self.axes_lengths = pattern, axes_lengths

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if input.dim() != 4:
            raise KeyError(input.dim())
        return F.unfold(input, self.axes_lengths["p"], stride=self.axes_lengths["p"]).transpose(1, 2)


Rearrange.__module__ = "einops.layers.torch"


class Patches(nn.Module):
    """The first layers of a vision transformer, with a position for each of 64 patches."""

    def __init__(self) -> None:
        super().__init__()
        to_tokens = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=32, q=32)
        self.embed = nn.Sequential(to_tokens, nn.Linear(32 * 32 * 3, 64))
        self.positions = nn.Parameter(torch.zeros(1, 64, 64))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.embed(image) + self.positions


class Subsampled(nn.Module):
    """Speech: one more dim before the first convolution, lengths beside the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, stride=2)
        self.project = nn.Linear(8 * 39, 32)

    def shortened(self, frames: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.conv(frames.unsqueeze(1)), lengths // 2

    def forward(self, frames: torch.Tensor, frame_lengths: torch.Tensor) -> tuple[Any, Any]:
        made, shorter = self.shortened(frames, frame_lengths)
        return self.project(made.transpose(1, 2).flatten(2)), shorter


class LanguageModel(nn.Module):
    """Time first, with the state of the LSTM as an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.rnn = nn.LSTM(16, 32, 2)

    def forward(self, words: torch.Tensor, hidden: Any) -> Any:
        return self.rnn(self.words(words), hidden)


class EqualizedConv(nn.Module):
    """A layer of the user's own, its weight scaled where it is used; what it takes is checked as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.side = 48
        self.weight = nn.Parameter(torch.zeros(8, 3, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[1:] == (3, self.side, self.side)
        return F.conv2d(x, self.weight * 0.1)


class TokenGate(nn.Module):
    """As many tokens as a weight mixes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.mix = nn.Parameter(torch.zeros(96, 96))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bnd,mn->bmd", self.words(words), self.mix)


class Block(nn.Sequential):
    """A layer of the user's own whose forward is PyTorch's."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    """Down in a loop, up by an index."""

    def __init__(self) -> None:
        super().__init__()
        self.downs = nn.ModuleList([Block(1, 8), Block(8, 16)])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(16, 16, 2, 2), Block(32, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        for index in range(0, len(self.ups), 2):
            x = self.ups[index](x)
            x = self.ups[index + 1](torch.cat([skips.pop(), x], 1))
        return x


class Positions(nn.Module):
    """Positions of a fixed window, added after the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(9, 16)
        self.positions = nn.Parameter(torch.zeros(96, 16))
        self.head = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.project(x) + self.positions)[:, -1]


class Prepared(NamedTuple):
    """What a detector makes of its images."""

    tensors: torch.Tensor
    sizes: list[int]


class Detector(nn.Module):
    """Turns its images into an object of another kind, whose attributes are not the images'."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3))

    def prepare(self, images: Any) -> Prepared:
        return Prepared(torch.stack(list(images)), [image.shape[-1] for image in images])

    def forward(self, images: Any) -> Any:
        images = self.prepare(images)
        return self.backbone(images.tensors), images.sizes


class ByClass(nn.Module):
    """Indices of classes come first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 4, 1)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        return self.conv(F.one_hot(wave, 16).float().transpose(1, 2))


class Unpacked(nn.Module):
    """Sizes and other things of a video, unpacked together."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16 * 16 * 3, 8)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        b, f, c, h, w, *_, _device, side = *video.shape, video.device, 16
        patches = video.view(b, f, c, h // side, side, w // side, side).permute(0, 1, 3, 5, 4, 6, 2)
        return self.project(patches.reshape(b, f * (h // side) * (w // side), side * side * c))


class NodesOfAGraph(nn.Module):
    """The model holds the graph, and its input as many rows as that has nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("graph", torch.eye(50).to_sparse())
        self.fc = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(self.graph, self.fc(x))


class Neighbours(nn.Module):
    """Points beside their differences from others: twice the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 8, 1)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        _, _, count = points.shape
        pairs = points.unsqueeze(3).expand(-1, -1, -1, count)
        return self.conv(torch.cat([pairs - points.unsqueeze(2), pairs], 1))


class Encoded(nn.Module):
    """The dense layer tells how large an image the convolutions take: 64 pixels."""

    def __init__(self) -> None:
        super().__init__()
        sizes = itertools.pairwise((3, 8, 8, 8, 16))
        self.convs = nn.Sequential(*(nn.Conv2d(inner, outer, 4, 2) for inner, outer in sizes))
        self.fc = nn.Linear(16 * 2 * 2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.convs(x).flatten(1))


class TableOfPositions(nn.Module):
    """Nothing but the table says how long a sequence may be."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 16), nn.Embedding(20, 16)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))


class GraphReadout(nn.Module):
    """The nodes of several graphs, and which graph each belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(7, 5)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.fc(x.index_add(0, edge_index[1], x[edge_index[0]]))
        return x.new_zeros(4, 5).index_add(0, batch, x)


class PooledToAPoint(nn.Module):
    """The window covers the map of the images that it was made for, of which one row each remains."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 64, 4, 2)
        self.fc = nn.Linear(64, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(F.avg_pool2d(self.conv(x), 15).view(-1, 64))


def shapes_of(graph: Graph) -> list[tuple[str, tuple[int, ...]]]:
    return [(spec.dtype, spec.shape) for spec in graph.inputs]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (Patches, [("float32", (8, 3, 256, 256))]),
        (LanguageModel, [("int64", (128, 8)), ("float32", (2, 8, 32)), ("float32", (2, 8, 32))]),
        (EqualizedConv, [("float32", (8, 3, 48, 48))]),
        (TokenGate, [("int64", (8, 96))]),
        (UNet, [("float32", (8, 1, 512, 512))]),
        (Positions, [("float32", (8, 96, 9))]),
        (Detector, [("float32", (8, 3, 640, 640))]),
        (ByClass, [("int64", (8, 1024))]),
        (Unpacked, [("float32", (8, 16, 3, 224, 224))]),
        (Subsampled, [("float32", (8, 224, 80)), ("int64", (8,))]),
        (PooledToAPoint, [("float32", (8, 1, 32, 32))]),
        (NodesOfAGraph, [("float32", (50, 16))]),
        (Neighbours, [("float32", (8, 3, 6))]),
        (Encoded, [("float32", (8, 3, 64, 64))]),
        (TableOfPositions, [("int64", (8, 20))]),
        (GraphReadout, [("float32", (2708, 7)), ("int64", (2, 10556)), ("int64", (2708,))]),
    ],
)
def test_inputs_are_inferred(
    build: Callable[[], nn.Module], expected: list[tuple[str, tuple[int, ...]]]
) -> None:
    assert shapes_of(tclint.trace(build)) == expected


class Capacity(nn.Module):
    """Places at experts, of which there are as many as are given, or as the data asks for."""

    def __init__(self, pick: Callable[[Any, int], int]) -> None:
        super().__init__()
        self.gate, self.pick = nn.Linear(8, 4), pick

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = F.one_hot(self.gate(x).argmax(-1), 4).cumsum(0).sum(-1)
        return F.one_hot(places, self.pick(places, 24))[..., :24]


@pytest.mark.parametrize(
    "pick",
    [
        lambda places, given: max(places.max() + 1, given),
        lambda places, given: max(given, places.max() + 1),
        lambda places, given: min(places.max() + 1, given),
        lambda places, given: min(given, places.max() + 1),
    ],
)
def test_the_known_size_is_taken_for_the_larger_and_the_smaller_one(pick: Callable[[Any, int], int]) -> None:
    graph = tclint.trace(lambda: Capacity(pick), torch.empty(6, 8))
    assert graph.ops[-1].outputs[0].shape == (6, 24)


def test_positions_beyond_their_table_are_refused() -> None:
    with pytest.raises(TargetError, match=r"index out of range in self: 29 in a table of 20 rows"):
        tclint.trace(TableOfPositions, torch.zeros(2, 30, dtype=torch.int64))


def test_a_one_hot_mask_selects_one_of_its_choices() -> None:
    class Pointer(nn.Module):
        """Picks one of the vectors by comparing their places with the best one's."""

        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(8, 1)
            self.cell = nn.GRUCell(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            count = x.shape[1]
            best = self.score(x).squeeze(-1).max(1)[1]
            picked = torch.arange(count) == best.unsqueeze(1).expand(-1, count)
            chosen = x[picked.float().unsqueeze(2).expand(-1, -1, 8).bool()].view(x.shape[0], -1)
            return self.cell(chosen)

    graph = tclint.trace(Pointer, torch.empty(3, 7, 8))
    assert graph.outputs[0].shape == (3, 8)


def test_numbers_made_for_a_traced_device_keep_their_values() -> None:
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes = torch.tensor([2, 3], device=x.device).tolist() + x.new_tensor([4.0]).tolist()
            return x.repeat(*map(int, sizes))

    graph = tclint.trace(Scales, torch.empty(1, 1, 1))
    assert graph.outputs[0].shape == (2, 3, 4)
    assert graph.assumptions == ()


def test_an_exported_program_is_called_as_it_was_exported() -> None:
    exported = torch.export.export(nn.Linear(48, 8), (torch.zeros(5, 48),)).module()
    assert shapes_of(tclint.trace(lambda: exported)) == [("float32", (5, 48))]


def test_fully_shard_leaves_the_model_whole() -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("an older torch")
    from torch.distributed.device_mesh import init_device_mesh

    def build() -> nn.Module:
        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
        assert mesh["shard"].size() == 4
        assert mesh.size() == 8
        model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
        for layer in model:
            fsdp.fully_shard(layer, mesh=mesh["shard"])
        return fsdp.fully_shard(model, mesh=mesh["shard"])

    graph = tclint.trace(build)
    assert [op.name for op in graph.ops] == ["linear", "linear"]
    assert {parameter.name for parameter in graph.parameters} == {
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
    }


def test_tensor_parallelism_is_refused_in_one_sentence() -> None:
    parallel = pytest.importorskip("torch.distributed.tensor.parallel")
    from torch.distributed.device_mesh import init_device_mesh

    def build() -> nn.Module:
        mesh = init_device_mesh("cuda", (2,))
        return parallel.parallelize_module(nn.Linear(16, 16), mesh, parallel.ColwiseParallel())

    with pytest.raises(TargetError, match="splits layers over a process group"):
        tclint.trace(build)


@since_2_5
def test_a_scan_for_gpus_runs() -> None:
    scans = pytest.importorskip("torch._higher_order_ops.associative_scan")
    scan = scans.associative_scan

    class Recurrence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return scan(lambda left, right: left * right, self.gates(x), 1, combine_mode="pointwise")

    graph = tclint.trace(Recurrence, torch.empty(2, 6, 8))
    assert graph.ops[-1].outputs[0].shape == (2, 6, 8)


def test_archives_and_quantized_weights_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="build the model from its source"):
        tclint.trace(lambda: torch.jit.load(tmp_path / "model.pt"))
    with pytest.raises(TargetError, match=r"quantized weights cannot be traced.*--quantized int8"):
        tclint.trace(lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(512, 512))))


def _same(what: str, have: int, want: int) -> None:
    assert have == want, f"Input {what} ({have}) doesn't match model ({want})."


class Sized(nn.Module):
    """Checks height and width, one after the other, by the same helper."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _same("height", x.shape[2], 336)
        _same("width", x.shape[3], 336)
        return self.conv(x)


def test_one_side_of_an_image_after_the_other() -> None:
    graph = tclint.trace(Sized)
    assert graph.inputs[0].shape[1:] == (3, 336, 336)


class Swelling(nn.Module):
    """Whatever the size of an axis, a million is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = min(x.shape[1:])
        raise RuntimeError(f"The size of tensor a ({size}) must match the size of tensor b ({1 << 20})")


def test_inputs_do_not_grow_without_end() -> None:
    with pytest.raises(TargetError, match="must match the size"):
        tclint.trace(Swelling)


class Hooked(nn.Linear):
    """Layers with hooks, and with a way of their own to be called."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.inner, self.own = nn.ReLU(), nn.ReLU()
        self.inner.register_forward_pre_hook(lambda module, args: (args[0].sin(),))
        self.inner.register_forward_hook(lambda module, args, out: out.exp())
        self.own._call_impl = lambda x: x * 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.own(self.inner(super().forward(x)))


def test_hooks_run() -> None:
    assert [op.name for op in tclint.trace(Hooked).ops] == ["linear", "sin", "relu", "exp", "mul"]
