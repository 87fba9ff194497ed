"""Models as scripts hand them over: wrapped for several processes, with caches, loops that are operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_distributed_data_parallel() -> tuple[nn.Module, Tensor]:
    torch.distributed.init_process_group("nccl")
    rank = torch.distributed.get_rank()
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to(rank)
    return nn.parallel.DistributedDataParallel(model, device_ids=[rank]), torch.randn(8, 64)


class CachedAttention(nn.Module):
    """One decoding step that writes into a static cache."""

    def __init__(self, width: int = 64, heads: int = 4, length: int = 128, batch: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        for name in ("keys", "values"):
            cache = torch.zeros(batch, heads, length, width // heads)
            self.register_buffer(name, cache, persistent=False)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        batch, steps, width = x.shape
        q, k, v = self.qkv(x).view(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys[:, :, position], self.values[:, :, position] = k, v
        end = int(position[-1]) + 1
        y = F.scaled_dot_product_attention(q, self.keys[:, :, :end], self.values[:, :, :end])
        return self.out(y.transpose(1, 2).reshape(batch, steps, width))


def build_cached_decoding_step() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return CachedAttention(), (torch.randn(2, 1, 64), torch.tensor([40]))


class Float32Head(nn.Module):
    """A head that the model takes out of autocast, inside of a bfloat16 region."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = self.body(x).relu()
            with torch.autocast(x.device.type, enabled=False):
                return self.head(x.float())


def build_autocast_island() -> tuple[nn.Module, Tensor]:
    return Float32Head(), torch.randn(8, 64)


class StreamedSteps(nn.Module):
    """A forward that yields."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(32, 48)

    def forward(self, x: Tensor):  # type: ignore[no-untyped-def]
        state = x.new_zeros(x.shape[0], 48)
        for step in x.unbind(1):
            state = self.cell(step, state)
            yield state


def build_streaming_recurrence() -> tuple[nn.Module, Tensor]:
    return StreamedSteps(), torch.randn(4, 6, 32)
