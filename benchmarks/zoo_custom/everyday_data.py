"""Tables, series, signals, graphs and points as people model them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CtrModel(nn.Module):
    """Dense numbers and one category per column."""

    def __init__(self, dense: int = 13, cardinalities: tuple[int, ...] = (100, 50, 2000, 12)) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(count, 16) for count in cardinalities)
        self.bottom = nn.Sequential(nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, 16))
        self.top = nn.Sequential(nn.Linear(16 * (len(cardinalities) + 1), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x_dense: Tensor, x_sparse: Tensor) -> Tensor:
        parts = [embedding(x_sparse[:, i]) for i, embedding in enumerate(self.embeddings)]
        return torch.sigmoid(self.top(torch.cat([self.bottom(x_dense), *parts], dim=1)))


def build_ctr_model() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return CtrModel(), (torch.zeros(64, 13), torch.zeros(64, 4, dtype=torch.long))


class FactorizationMachine(nn.Module):
    """All fields share one table, with an offset each."""

    def __init__(self, field_dims: tuple[int, ...] = (600, 900, 30, 7, 21), dim: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sum(field_dims), dim)
        self.linear = nn.Embedding(sum(field_dims), 1)
        starts = torch.tensor((0, *field_dims[:-1])).cumsum(0)
        self.register_buffer("offsets", starts)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.offsets.unsqueeze(0)
        factors = self.embedding(x)
        pairs = factors.sum(1).pow(2) - factors.pow(2).sum(1)
        return torch.sigmoid(self.linear(x).sum(1).squeeze(1) + self.bias + 0.5 * pairs.sum(1))


def build_factorization_machine() -> tuple[nn.Module, Tensor]:
    return FactorizationMachine(), torch.zeros(256, 5, dtype=torch.long)


class NeuralFiltering(nn.Module):
    def __init__(self, num_users: int = 6000, num_items: int = 3700, dim: int = 32) -> None:
        super().__init__()
        self.user_mf, self.item_mf = nn.Embedding(num_users, dim), nn.Embedding(num_items, dim)
        self.user_mlp, self.item_mlp = nn.Embedding(num_users, dim), nn.Embedding(num_items, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.predict = nn.Linear(16 + dim, 1)

    def forward(self, user_indices: Tensor, item_indices: Tensor) -> Tensor:
        mf = self.user_mf(user_indices) * self.item_mf(item_indices)
        mlp = self.mlp(torch.cat([self.user_mlp(user_indices), self.item_mlp(item_indices)], dim=-1))
        return torch.sigmoid(self.predict(torch.cat([mf, mlp], dim=-1))).squeeze(-1)


def build_neural_filtering() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    ids = torch.zeros(1024, dtype=torch.long)
    return NeuralFiltering(), (ids, ids.clone())


class TabularResidual(nn.Module):
    def __init__(self, in_dim: int = 54, width: int = 256) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(in_dim)
        self.inp = nn.Linear(in_dim, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.head = nn.Linear(width, 7)

    def forward(self, features: Tensor) -> Tensor:
        x = self.inp(self.bn(features))
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.head(x)


def build_tabular_residual() -> tuple[nn.Module, Tensor]:
    return TabularResidual(), torch.zeros(512, 54)


class SeriesLstm(nn.Module):
    """Makes its first state itself; (batch, time, features)."""

    def __init__(self, input_size: int = 7, hidden_size: int = 64, num_layers: int = 2) -> None:
        super().__init__()
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers, batch_first=True)
        self.fc = nn.Linear(hidden_size, 1)

    def forward(self, x: Tensor) -> Tensor:
        h0 = torch.zeros(self.num_layers, x.size(0), self.hidden_size).to(x.device)
        c0 = torch.zeros(self.num_layers, x.size(0), self.hidden_size).to(x.device)
        out, _ = self.lstm(x, (h0, c0))
        return self.fc(out[:, -1, :])


def build_series_lstm() -> tuple[nn.Module, Tensor]:
    return SeriesLstm(), torch.zeros(64, 48, 7)


class SeriesTransformer(nn.Module):
    """A projection of the features first, then positions and an encoder."""

    def __init__(self, features: int = 9, d_model: int = 64, window: int = 96) -> None:
        super().__init__()
        self.input_projection = nn.Linear(features, d_model)
        self.positions = nn.Parameter(torch.zeros(window, d_model))
        layer = nn.TransformerEncoderLayer(d_model, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.input_projection(x) + self.positions
        return self.head(self.encoder(x)[:, -1])


def build_series_transformer() -> tuple[nn.Module, Tensor]:
    return SeriesTransformer(), torch.zeros(32, 96, 9)


class DecompositionLinear(nn.Module):
    """Trend and season, each a linear map over time: the layer's width is the length, not the features."""

    def __init__(self, seq_len: int = 336, pred_len: int = 96) -> None:
        super().__init__()
        self.seq_len, self.pred_len = seq_len, pred_len
        self.average = nn.AvgPool1d(25, stride=1, padding=12)
        self.seasonal, self.trend = nn.Linear(seq_len, pred_len), nn.Linear(seq_len, pred_len)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 1)
        trend = self.average(x)
        return (self.seasonal(x - trend) + self.trend(trend)).permute(0, 2, 1)


def build_decomposition_linear() -> tuple[nn.Module, Tensor]:
    return DecompositionLinear(), torch.zeros(32, 336, 7)


class TemporalConv(nn.Module):
    """Features last as the data set has them, first as the convolution wants them."""

    def __init__(self, features: int = 6, classes: int = 5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inner = features
        for index in range(4):
            layers += [nn.Conv1d(inner, 64, 3, padding=2**index, dilation=2**index), nn.ReLU()]
            inner = 64
        self.tcn = nn.Sequential(*layers)
        self.linear = nn.Linear(64, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.tcn(inputs.transpose(1, 2))
        return F.log_softmax(self.linear(x[:, :, -1]), dim=1)


def build_temporal_conv() -> tuple[nn.Module, Tensor]:
    return TemporalConv(), torch.zeros(32, 128, 6)


class MelCnn(nn.Module):
    """A 1-d convolution over the frames of a mel spectrogram, then a GRU."""

    def __init__(self, n_mels: int = 64, classes: int = 35) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(n_mels, 128, 5, 2, 2), nn.BatchNorm1d(128), nn.ReLU())
        self.gru = nn.GRU(128, 128, batch_first=True, bidirectional=True)
        self.out = nn.Linear(256, classes)

    def forward(self, mel: Tensor) -> Tensor:
        x, _ = self.gru(self.conv(mel).permute(0, 2, 1))
        return self.out(x.mean(dim=1))


def build_mel_cnn() -> tuple[nn.Module, Tensor]:
    return MelCnn(), torch.zeros(16, 64, 101)


class WaveM5(nn.Module):
    """Raw audio of one channel, 8,000 samples."""

    def __init__(self, n_input: int = 1, n_output: int = 35, stride: int = 16, n_channel: int = 32) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(n_input, n_channel, kernel_size=80, stride=stride)
        self.bn1, self.pool1 = nn.BatchNorm1d(n_channel), nn.MaxPool1d(4)
        self.conv2 = nn.Conv1d(n_channel, n_channel, kernel_size=3)
        self.bn2, self.pool2 = nn.BatchNorm1d(n_channel), nn.MaxPool1d(4)
        self.conv3 = nn.Conv1d(n_channel, 2 * n_channel, kernel_size=3)
        self.bn3, self.pool3 = nn.BatchNorm1d(2 * n_channel), nn.MaxPool1d(4)
        self.fc1 = nn.Linear(2 * n_channel, n_output)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(F.relu(self.bn1(self.conv1(x))))
        x = self.pool2(F.relu(self.bn2(self.conv2(x))))
        x = self.pool3(F.relu(self.bn3(self.conv3(x))))
        x = F.avg_pool1d(x, x.shape[-1]).permute(0, 2, 1)
        return F.log_softmax(self.fc1(x), dim=2)


def build_wave_m5() -> tuple[nn.Module, Tensor]:
    return WaveM5(), torch.zeros(32, 1, 8000)


class HeartbeatNet(nn.Module):
    """A flattened signal of 187 samples."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 32, 5),
            nn.ReLU(),
            nn.MaxPool1d(5, 2),
            nn.Conv1d(32, 32, 5),
            nn.ReLU(),
            nn.MaxPool1d(5, 2),
        )
        self.fc = nn.Sequential(nn.Linear(32 * 41, 64), nn.ReLU(), nn.Linear(64, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.fc(x.view(x.size(0), -1))


def build_heartbeat_net() -> tuple[nn.Module, Tensor]:
    return HeartbeatNet(), torch.zeros(64, 1, 187)


class CrnnOcr(nn.Module):
    """Text lines: the height of 32 becomes 1, the width becomes time."""

    def __init__(self, classes: int = 37, hidden: int = 256) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 64, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(64, 128, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(128, 256, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
            nn.Conv2d(256, 512, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
            nn.Conv2d(512, 512, 2),
        )
        self.rnn = nn.LSTM(512, hidden, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, input: Tensor) -> Tensor:
        conv = self.cnn(input)
        _b, _c, h, _w = conv.size()
        assert h == 1, "the height of conv must be 1"
        recurrent, _ = self.rnn(conv.squeeze(2).permute(2, 0, 1))
        return self.fc(recurrent)


def build_crnn_ocr() -> tuple[nn.Module, Tensor]:
    return CrnnOcr(), torch.zeros(16, 1, 32, 128)


class SegmentPointNet(nn.Module):
    """Points with their coordinates first, a global feature joined to each."""

    def __init__(self, classes: int = 13) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = (
            nn.Conv1d(3, 64, 1),
            nn.Conv1d(64, 128, 1),
            nn.Conv1d(128, 1024, 1),
        )
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm1d(64), nn.BatchNorm1d(128), nn.BatchNorm1d(1024)
        self.head = nn.Conv1d(1088, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        n_pts = x.size(2)
        x = F.relu(self.bn1(self.conv1(x)))
        local = x
        x = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(x)))))
        x = torch.max(x, 2, keepdim=True)[0].view(-1, 1024, 1).repeat(1, 1, n_pts)
        return F.log_softmax(self.head(torch.cat([x, local], 1)).transpose(2, 1), dim=-1)


def build_segment_point_net() -> tuple[nn.Module, Tensor]:
    return SegmentPointNet(), torch.zeros(8, 3, 2048)


class PointSet(nn.Module):
    """Points with their coordinates last, layers that act on each."""

    def __init__(self) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 256))
        self.rho = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 40))

    def forward(self, points: Tensor) -> Tensor:
        return self.rho(self.phi(points).max(dim=1).values)


def build_point_set() -> tuple[nn.Module, Tensor]:
    return PointSet(), torch.zeros(8, 1024, 3)


class GcnLayer(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inner, outer))
        self.bias = nn.Parameter(torch.zeros(outer))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, input: Tensor, adj: Tensor) -> Tensor:
        return torch.spmm(adj, torch.mm(input, self.weight)) + self.bias


class Gcn(nn.Module):
    """Weights that are bare parameters, and a dense or sparse adjacency."""

    def __init__(self, nfeat: int = 1433, nhid: int = 16, nclass: int = 7) -> None:
        super().__init__()
        self.gc1, self.gc2 = GcnLayer(nfeat, nhid), GcnLayer(nhid, nclass)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.gc1(x, adj)), 0.5, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def build_gcn() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return Gcn(), (torch.zeros(500, 1433), torch.zeros(500, 500))


class EdgeNetwork(nn.Module):
    """Messages along edges, summed at their ends, nodes pooled by graph."""

    def __init__(self, node_dim: int = 11, edge_dim: int = 4, hidden: int = 64) -> None:
        super().__init__()
        self.node, self.edge = nn.Linear(node_dim, hidden), nn.Linear(edge_dim, hidden)
        self.message = nn.Linear(2 * hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        src, dst = edge_index
        h = self.node(x)
        message = F.relu(self.message(torch.cat([h[src], self.edge(edge_attr)], dim=-1)))
        h = h + torch.zeros_like(h).index_add(0, dst, message)
        return self.out(h).mean()


def build_edge_network() -> tuple[nn.Module, tuple[Tensor, Tensor, Tensor]]:
    index = torch.zeros(2, 300, dtype=torch.long)
    return EdgeNetwork(), (torch.zeros(100, 11), index, torch.zeros(300, 4))


class Policy(nn.Module):
    """Soft actor-critic: an observation and an action, joined."""

    def __init__(self, obs_dim: int = 17, act_dim: int = 6) -> None:
        super().__init__()
        self.q1 = nn.Sequential(nn.Linear(obs_dim + act_dim, 256), nn.ReLU(), nn.Linear(256, 1))
        self.actor = nn.Sequential(nn.Linear(obs_dim, 256), nn.ReLU(), nn.Linear(256, 2 * act_dim))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs).chunk(2, dim=-1)
        action = torch.tanh(mean + log_std.clamp(-20, 2).exp() * torch.randn_like(mean))
        return action, self.q1(torch.cat([obs, action], dim=-1))


def build_policy() -> tuple[nn.Module, Tensor]:
    return Policy(), torch.zeros(256, 17)


class DenoisingMlp(nn.Module):
    """Diffusion of small vectors: a sinusoidal embedding of a time that is a float."""

    def __init__(self, dim: int = 2, hidden: int = 128) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(64, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.inp, self.mid, self.out = (
            nn.Linear(dim, hidden),
            nn.Linear(hidden, hidden),
            nn.Linear(hidden, dim),
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        half = torch.exp(-math.log(10000) * torch.arange(32, device=x.device) / 32)
        angles = t[:, None].float() * half[None]
        embedded = self.time_mlp(torch.cat([angles.sin(), angles.cos()], dim=-1))
        return self.out(F.silu(self.mid(F.silu(self.inp(x) + embedded))))


def build_denoising_mlp() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return DenoisingMlp(), (torch.zeros(256, 2), torch.zeros(256))
