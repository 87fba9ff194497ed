"""Habits of models in the wild: how they rearrange, spread, scan and import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tclint
from tclint.errors import TargetError
from tclint.graph import Graph


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


class Codebook(nn.Module):
    """No layer, but a width; the nearest entries are looked up by their place."""

    def __init__(self) -> None:
        super().__init__()
        self.dim = 96
        self.entries = nn.Parameter(torch.zeros(16, 96))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nearest = torch.cdist(x, self.entries[None]).argmin(-1)
        return self.entries[nearest]


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


def shapes_of(graph: Graph) -> list[tuple[str, tuple[int, ...]]]:
    return [(spec.dtype, spec.shape) for spec in graph.inputs]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (Patches, [("float32", (8, 3, 256, 256))]),
        (Codebook, [("float32", (8, 128, 96))]),
        (Subsampled, [("float32", (8, 224, 80)), ("int64", (8,))]),
    ],
)
def test_inputs_are_inferred(
    build: Callable[[], nn.Module], expected: list[tuple[str, tuple[int, ...]]]
) -> None:
    assert shapes_of(tclint.trace(build)) == expected


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
