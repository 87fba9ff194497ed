"""Recommenders, graphs and sets: bags, scatters, sparse matrices, sorting."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dlrm(nn.Module):
    def __init__(self, tables: int = 6, size: int = 64) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(100_000, size, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, size), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(size + pairs, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())

    def forward(self, dense: Tensor, indices: list[Tensor], offsets: list[Tensor]) -> Tensor:
        x = self.bottom(dense)
        looked_up = [
            bag(index, offset) for bag, index, offset in zip(self.bags, indices, offsets, strict=True)
        ]
        features = torch.stack([x, *looked_up], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        rows, columns = torch.tril_indices(features.shape[1], features.shape[1], offset=-1)
        return self.top(torch.cat([x, products[:, rows, columns]], dim=1))


def build_dlrm() -> tuple[nn.Module, tuple[Tensor, list[Tensor], list[Tensor]]]:
    indices = [torch.zeros(128, dtype=torch.long) for _ in range(6)]
    offsets = [torch.arange(0, 128, 2) for _ in range(6)]
    return Dlrm(), (torch.zeros(64, 13), indices, offsets)


class WideAndDeep(nn.Module):
    """Category sizes from a configuration, embeddings in a ModuleDict, inputs as a dict."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        self.tables = nn.ModuleDict(
            {name: nn.Embedding(count, min(50, count // 2 + 1)) for name, count in sizes.items()}
        )
        width = sum(table.embedding_dim for table in self.tables.values())
        self.deep = nn.Sequential(nn.LazyLinear(128), nn.ReLU(), nn.Dropout(0.2), nn.LazyLinear(1))
        self.wide = nn.Linear(width, 1)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        embedded = torch.cat([table(features[name]) for name, table in self.tables.items()], dim=-1)
        return torch.sigmoid(self.deep(embedded) + self.wide(embedded))


def build_wide_and_deep() -> tuple[nn.Module, tuple[dict[str, Tensor]]]:
    sizes = {"country": 30, "device": 7, "hour": 24, "user": 9001}
    return WideAndDeep(sizes), ({name: torch.zeros(32, dtype=torch.long) for name in sizes},)


class GraphConvolution(nn.Module):
    """A graph convolution with a sparse adjacency matrix that is a buffer."""

    def __init__(self, nodes: int = 200) -> None:
        super().__init__()
        edges = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
        self.register_buffer("adjacency", torch.sparse_coo_tensor(edges, torch.ones(nodes), (nodes, nodes)))
        self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(torch.sparse.mm(self.adjacency, self.first(x)))
        return F.log_softmax(torch.sparse.mm(self.adjacency, self.second(x)), dim=1)


def build_sparse_graph_convolution() -> tuple[nn.Module, Tensor]:
    return GraphConvolution(), torch.zeros(200, 64)


class GraphAttention(nn.Module):
    """Edge softmax by scatter, node count taken from the largest index where it is not given."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 4 * 16, bias=False)
        self.source, self.target = (nn.Parameter(torch.zeros(4, 16)) for _ in range(2))
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        hidden = self.project(x).view(-1, 4, 16)
        scores = F.leaky_relu((hidden * self.source).sum(-1)[source] + (hidden * self.target).sum(-1)[target])
        count = max(int(edges.max()) + 1, x.shape[0])
        highest = torch.full((count, 4), -1e9).scatter_reduce(
            0, target[:, None].expand(-1, 4), scores, reduce="amax"
        )
        weights = (scores - highest[target]).exp()
        total = torch.zeros(count, 4).index_add_(0, target, weights)
        messages = hidden[source] * (weights / (total[target] + 1e-9)).unsqueeze(-1)
        gathered = torch.zeros(count, 4, 16).index_add(0, target, messages)
        return self.head(F.elu(gathered.flatten(1)))


def build_graph_attention() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return GraphAttention(), (torch.zeros(100, 32), torch.randint(0, 100, (2, 400)))


class MessagePassing(nn.Module):
    """Batched graphs pooled per graph, with `unique` and a Python loop over the groups."""

    def __init__(self) -> None:
        super().__init__()
        self.update = nn.GRUCell(48, 48)
        self.message = nn.Linear(96, 48)
        self.readout = nn.Linear(48, 1)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        for _ in range(3):
            message = F.relu(self.message(torch.cat([x[edges[0]], x[edges[1]]], dim=1)))
            x = self.update(torch.zeros_like(x).index_add(0, edges[1], message), x)
        pooled = [x[graph == which].mean(dim=0) for which in graph.unique()]
        return self.readout(torch.stack(pooled))


def build_message_passing() -> tuple[nn.Module, tuple[Tensor, Tensor, Tensor]]:
    graph = torch.arange(4).repeat_interleave(15)
    return MessagePassing(), (torch.zeros(60, 48), torch.randint(0, 60, (2, 180)), graph)


class SetDifference(nn.Module):
    """Indices that another set does not hold, found by isin and by a Python set."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.score = nn.Embedding(500, 32), nn.Linear(32, 1)

    def forward(self, all_items: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        unseen = all_items[~torch.isin(all_items, seen)]
        also_unseen = torch.tensor(sorted(set(all_items.tolist()) - set(seen.tolist())), dtype=torch.long)
        return self.score(self.embedding(unseen)), self.score(self.embedding(also_unseen))


def build_set_difference() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return SetDifference(), (torch.arange(100), torch.arange(0, 100, 3))


class CapsuleRouting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.primary = nn.Conv2d(1, 64, 9, 2)
        self.weight = nn.Parameter(torch.randn(10, 800, 8, 16) * 0.01)

    def forward(self, images: Tensor) -> Tensor:
        capsules = self.primary(images).view(images.shape[0], -1, 8)
        votes = torch.einsum("bni,cnio->bcno", capsules, self.weight)
        logits = torch.zeros(votes.shape[:3], device=images.device)
        for _ in range(3):
            mixed = (logits.softmax(dim=1).unsqueeze(-1) * votes).sum(dim=2)
            norm = mixed.norm(dim=-1, keepdim=True)
            output = mixed * norm / (1 + norm**2)
            logits = logits + (votes * output.unsqueeze(2)).sum(-1)
        return output.norm(dim=-1)


def build_capsule_routing() -> tuple[nn.Module, Tensor]:
    return CapsuleRouting(), torch.zeros(4, 1, 28, 28)


class RadianceField(nn.Module):
    """Rays sampled, encoded, composed by a cumulative product, and resampled by searchsorted."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList(
            [nn.Linear(63, 256), *(nn.Linear(256, 256) for _ in range(3)), nn.Linear(319, 256)]
        )
        self.head = nn.Linear(256, 4)

    def field(self, points: Tensor) -> tuple[Tensor, Tensor]:
        bands = 2.0 ** torch.arange(10, device=points.device)
        angles = (points[..., None] * bands).flatten(-2)
        encoded = torch.cat([points, angles.sin(), angles.cos()], dim=-1)
        x = encoded
        for index, layer in enumerate(self.body):
            if index == 4:
                x = torch.cat([x, encoded], dim=-1)
            x = F.relu(layer(x))
        colour, density = self.head(x).split([3, 1], dim=-1)
        return colour.sigmoid(), F.relu(density.squeeze(-1))

    def forward(self, origins: Tensor, directions: Tensor) -> Tensor:
        depths = torch.linspace(2, 6, 32, device=origins.device).expand(origins.shape[0], 32)
        depths = depths + torch.rand_like(depths) * (4 / 32)
        _, density = self.field(origins[:, None] + directions[:, None] * depths[..., None])
        cumulative = torch.cumsum(density / (density.sum(-1, keepdim=True) + 1e-5), dim=-1)
        samples = torch.rand(origins.shape[0], 32, device=origins.device)
        fine = depths.gather(1, torch.searchsorted(cumulative.contiguous(), samples).clamp(max=31))
        depths, _ = torch.sort(torch.cat([depths, fine], dim=-1), dim=-1)
        colour, density = self.field(origins[:, None] + directions[:, None] * depths[..., None])
        gaps = torch.diff(depths, append=depths[:, -1:] + 1e3)
        alpha = 1 - torch.exp(-density * gaps)
        seen = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return ((alpha * seen).unsqueeze(-1) * colour).sum(dim=1)


def build_radiance_field() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return RadianceField(), (torch.zeros(256, 3), torch.zeros(256, 3))
