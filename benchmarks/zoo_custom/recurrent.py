"""Recurrent networks: packed and padded sequences, cells in Python loops, decoders that feed themselves."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence


class LanguageModel(nn.Module):
    def __init__(self, vocabulary: int = 10000, size: int = 650) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.lstm = nn.LSTM(size, size, num_layers=2, dropout=0.5)
        self.head = nn.Linear(size, vocabulary)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.head(hidden)


def build_lstm_language_model() -> tuple[nn.Module, Tensor]:
    return LanguageModel(), torch.zeros(35, 20, dtype=torch.long)


class PackedTagger(nn.Module):
    def __init__(self, sort: bool) -> None:
        super().__init__()
        self.sort = sort
        self.embedding = nn.Embedding(5000, 128, padding_idx=0)
        self.lstm = nn.LSTM(128, 256, bidirectional=True, batch_first=True)
        self.head = nn.Linear(512, 17)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=self.sort)
        output, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(output, batch_first=True, total_length=tokens.shape[1])
        return self.head(padded)


def build_packed_lstm_sorted() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return PackedTagger(sort=True), (torch.zeros(4, 50, dtype=torch.long), torch.tensor([50, 40, 21, 5]))


def build_packed_lstm_unsorted() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return PackedTagger(sort=False), (torch.zeros(4, 50, dtype=torch.long), torch.tensor([5, 40, 50, 21]))


class ListEncoder(nn.Module):
    """Sequences of different lengths as a list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(40, 96, num_layers=2)

    def forward(self, sequences: list[Tensor]) -> Tensor:
        _, state = self.gru(pack_sequence(sequences, enforce_sorted=False))
        return state[-1]


def build_gru_on_a_list_of_sequences() -> tuple[nn.Module, tuple[list[Tensor]]]:
    return ListEncoder(), ([torch.zeros(length, 40) for length in (11, 30, 7)],)


class CellLoop(nn.Module):
    def __init__(self, cell: str) -> None:
        super().__init__()
        self.cell = getattr(nn, cell)(32, 64)
        self.is_lstm = cell == "LSTMCell"

    def forward(self, frames: Tensor) -> Tensor:
        state = None
        outputs = []
        for frame in frames:
            state = self.cell(frame, state)
            outputs.append(state[0] if self.is_lstm else state)
        return torch.stack(outputs)


def build_lstm_cell_loop() -> tuple[nn.Module, Tensor]:
    return CellLoop("LSTMCell"), torch.zeros(20, 8, 32)


def build_gru_cell_loop() -> tuple[nn.Module, Tensor]:
    return CellLoop("GRUCell"), torch.zeros(20, 8, 32)


class GreedyTranslator(nn.Module):
    """Encoder, additive attention, and a decoder that feeds back its own argmax until all have ended."""

    def __init__(self, vocabulary: int = 8000, size: int = 256) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, size)
        self.target = nn.Embedding(vocabulary, size)
        self.encoder = nn.GRU(size, size, bidirectional=True, batch_first=True)
        self.bridge = nn.Linear(2 * size, size)
        self.cell = nn.GRUCell(3 * size, size)
        self.query, self.key = nn.Linear(size, size, bias=False), nn.Linear(2 * size, size, bias=False)
        self.score = nn.Linear(size, 1)
        self.head = nn.Linear(size, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        memory, last = self.encoder(self.source(tokens))
        state = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=1)))
        word = torch.full((tokens.shape[0],), 1, dtype=torch.long, device=tokens.device)
        ended = torch.zeros_like(word, dtype=torch.bool)
        outputs = []
        for _ in range(12):
            energy = self.score(torch.tanh(self.query(state).unsqueeze(1) + self.key(memory)))
            context = (energy.softmax(dim=1) * memory).sum(dim=1)
            state = self.cell(torch.cat([self.target(word), context], dim=1), state)
            logits = self.head(state)
            word = logits.argmax(dim=-1)
            ended = ended | (word == 2)
            outputs.append(logits)
            if ended.all():
                break
        return torch.stack(outputs, dim=1)


def build_greedy_translator() -> tuple[nn.Module, Tensor]:
    return GreedyTranslator(), torch.zeros(4, 25, dtype=torch.long)


class CrfTagger(nn.Module):
    """Viterbi decoding with back-pointers and a Python loop over `.item()`."""

    def __init__(self, tags: int = 12) -> None:
        super().__init__()
        self.lstm = nn.LSTM(100, 100, batch_first=True)
        self.emission = nn.Linear(100, tags)
        self.transition = nn.Parameter(torch.randn(tags, tags))

    def forward(self, words: Tensor) -> tuple[Tensor, list[int]]:
        emissions = self.emission(self.lstm(words)[0])[0]
        score, pointers = emissions[0], []
        for emission in emissions[1:]:
            score, pointer = (score.unsqueeze(1) + self.transition).max(dim=0)
            score = score + emission
            pointers.append(pointer)
        best = int(score.argmax().item())
        path = [best]
        for pointer in reversed(pointers):
            best = int(pointer[best].item())
            path.append(best)
        return score.max(), path[::-1]


def build_crf_tagger() -> tuple[nn.Module, Tensor]:
    return CrfTagger(), torch.zeros(1, 15, 100)


class PointerNetwork(nn.Module):
    """Picks its inputs one after the other by attention over them, each once."""

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.embed = nn.Linear(2, size)
        self.encoder = nn.LSTM(size, size, batch_first=True)
        self.decoder = nn.LSTMCell(size, size)
        self.of_inputs, self.of_state = nn.Linear(size, size), nn.Linear(size, size)
        self.score = nn.Parameter(torch.rand(size))
        self.start = nn.Parameter(torch.rand(size))

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        batch, count, _ = points.shape
        embedded = self.embed(points)
        encoded, (hidden, cell) = self.encoder(embedded)
        state, given = (hidden[-1], cell[-1]), self.start.expand(batch, -1)
        places = torch.arange(count).expand(batch, -1)
        is_open = torch.ones(batch, count)
        shares, picked = [], []
        for _ in range(count):
            state = self.decoder(given, state)
            scores = torch.tanh(self.of_inputs(encoded) + self.of_state(state[0]).unsqueeze(1)) @ self.score
            share = scores.masked_fill(is_open == 0, float("-inf")).softmax(-1)
            best = share.max(1)[1]
            is_best = (places == best.unsqueeze(1).expand(-1, count)).float()
            is_open = is_open * (1 - is_best)
            given = embedded[is_best.unsqueeze(2).expand_as(embedded).bool()].view(batch, -1)
            shares.append(share)
            picked.append(best)
        return torch.stack(shares, 1), torch.stack(picked, 1)


def build_pointer_network() -> tuple[nn.Module, Tensor]:
    return PointerNetwork(), torch.rand(16, 20, 2)


class TuringMachine(nn.Module):
    """A controller that reads and writes a memory by content and by shifts of its last place."""

    def __init__(self, width: int = 9, rows: int = 128, columns: int = 20, size: int = 100) -> None:
        super().__init__()
        self.controller = nn.LSTMCell(width + columns, size)
        self.first = nn.Parameter(torch.zeros(2, size))
        self.register_buffer("memory", torch.full((rows, columns), 1e-6))
        self.to_read = nn.Linear(size, columns + 5)
        self.to_write = nn.Linear(size, 3 * columns + 5)
        self.output = nn.Linear(size + columns, width - 1)

    def address(self, memory: Tensor, told: Tensor, last: Tensor) -> Tensor:
        columns = memory.shape[2]
        key, sharpness, gate, shift = told.split([columns, 1, 1, 3], 1)
        by_content = torch.softmax(
            sharpness.exp() * torch.cosine_similarity(memory, key.unsqueeze(1), dim=2), 1
        )
        gated = torch.lerp(last, by_content, torch.sigmoid(gate))
        moved = [
            nn.functional.conv1d(
                torch.cat([row[-1:], row, row[:1]])[None, None], kernel[None, None]
            ).flatten()
            for row, kernel in zip(gated, shift.softmax(1), strict=True)
        ]
        return torch.stack(moved)

    def forward(self, x: Tensor) -> Tensor:
        steps, batch, _ = x.shape
        memory = self.memory.clone().repeat(batch, 1, 1)
        hidden, cell = (part.repeat(batch, 1) for part in self.first)
        read, reading, writing = (x.new_zeros(batch, n) for n in (memory.shape[2], *[memory.shape[1]] * 2))
        outputs = []
        for step in range(steps):
            hidden, cell = self.controller(torch.cat([x[step], read], 1), (hidden, cell))
            reading = self.address(memory, self.to_read(hidden), reading)
            read = torch.bmm(reading.unsqueeze(1), memory).squeeze(1)
            told, erased, added = self.to_write(hidden).split(
                [memory.shape[2] + 5, *[memory.shape[2]] * 2], 1
            )
            writing = self.address(memory, told, writing)
            memory = memory * (1 - torch.einsum("br,bc->brc", writing, torch.sigmoid(erased)))
            memory = memory + torch.einsum("br,bc->brc", writing, added)
            outputs.append(torch.sigmoid(self.output(torch.cat([hidden, read], 1))))
        return torch.stack(outputs)


def build_turing_machine() -> tuple[nn.Module, Tensor]:
    return TuringMachine(), torch.rand(10, 4, 9)
