"""Recurrent cells in loops: some over a sequence that is known, some not."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.cell = nn.LSTMCell(width, hidden)
        self.gru = nn.GRUCell(width, hidden)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, h, c):
        outputs = []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))  # ARC006: flag
            outputs.append(h)
        return torch.stack(outputs, 1)

    def encode(self, sequence, state):
        for step in sequence.unbind(1):
            state = self.gru(step, state)  # ARC006: flag
        return state

    def dropped(self, sequence, state):
        for step in sequence.unbind(1):
            state = self.gru(self.drop(step), self.drop(state))  # ARC006: quiet
        return state


class TimeMajor(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNNCell(40, 128)
        self.lstm = nn.LSTMCell(40, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, frames):
        hidden = frames.new_zeros(frames.size(1), 128)
        for i in range(len(frames)):
            hidden = self.rnn(frames[i], hidden)  # ARC006: flag
        return self.out(hidden)

    def classify(self, frames, hx, cx):
        for frame in frames:
            hx, cx = self.lstm(frame, (hx, cx))  # ARC006: flag
        return self.out(hx)


class Captioner(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 256)
        self.attention = nn.Linear(512, 1)
        self.step = nn.LSTMCell(256 + 512, 512)
        self.out = nn.Linear(512, vocabulary)

    def forward(self, features, captions, h, c):
        scores = []
        for t in range(captions.size(1)):
            weights = torch.softmax(self.attention(features + h.unsqueeze(1)), 1)
            seen = (weights * features).sum(1)
            h, c = self.step(torch.cat([self.embed(captions[:, t]), seen], 1), (h, c))  # ARC006: quiet
            scores.append(self.out(h))
        return torch.stack(scores, 1)

    def sample(self, word, h, c, length):
        for _ in range(length):
            h, c = self.step(self.embed(word), (h, c))  # ARC006: quiet
            word = self.out(h).argmax(-1)
        return word


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.LSTMCell(256, 256)

    def forward(self, observations, masks, hx, cx):
        for t in range(observations.shape[0]):
            hx, cx = hx * masks[t], cx * masks[t]
            hx, cx = self.core(observations[t], (hx, cx))  # ARC006: quiet
        return hx
