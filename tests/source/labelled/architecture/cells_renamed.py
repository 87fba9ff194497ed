"""Cells whose new state gets the old one's name at the end of each turn."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.width = width
        self.cell = nn.LSTMCell(inputs, width)
        self.gate = nn.GRUCell(inputs, width)

    def forward(self, x):
        before = torch.zeros(x.size(0), self.width)
        memory = torch.zeros(x.size(0), self.width)
        states = []
        for t in range(x.size(1)):
            after, kept = self.cell(x[:, t], (before, memory))  # ARC006: flag
            states.append(after)
            before = after
            memory = kept
        return torch.stack(states, 1)

    def memories(self, x):
        before = torch.zeros(x.size(0), self.width)
        memory = torch.zeros(x.size(0), self.width)
        memories = []
        for t in range(x.size(1)):
            after, kept = self.cell(x[:, t], (before, memory))  # ARC006: quiet
            memories.append(kept)
            before = after
            memory = kept
        return torch.stack(memories, 1)

    def transposed(self, x):
        state = torch.zeros(x.size(0), self.width)
        states = []
        for step in x.transpose(0, 1):
            state = self.gate(step, state)  # ARC006: flag
            states += [state]
        return torch.stack(states)

    def masked(self, x, mask):
        state = torch.zeros(x.size(0), self.width)
        for t in range(x.size(1)):
            new = self.gate(x[:, t], state)  # ARC006: quiet
            state = mask[:, t : t + 1] * new + (1 - mask[:, t : t + 1]) * state
        return state


class Layers(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.width = width
        self.cells = nn.ModuleList([nn.LSTMCell(inputs if i == 0 else width, width) for i in range(depth)])

    def forward(self, x):
        for layer in range(len(self.cells)):
            h = torch.zeros(x.size(0), self.width)
            c = torch.zeros(x.size(0), self.width)
            states = []
            for t in range(x.size(1)):
                h, c = self.cells[layer](x[:, t], (h, c))  # ARC006: flag
                states.append(h)
            x = torch.stack(states, 1)
        return x

    def one_cell_per_step(self, x):
        h = torch.zeros(x.size(0), self.width)
        c = torch.zeros(x.size(0), self.width)
        for t in range(len(self.cells)):
            h, c = self.cells[t](x[:, t], (h, c))  # ARC006: quiet
        return h
