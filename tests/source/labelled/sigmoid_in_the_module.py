"""A discriminator that ends in a sigmoid, and a loss in the loop that takes its logarithm."""

import torch
from torch import nn


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 1), nn.Sigmoid())

    def forward(self, x):
        out = self.main(x)
        return out.view(-1)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 1)

    def forward(self, x):
        return torch.sigmoid(self.fc(x))


class Either(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 1)

    def forward(self, x, logits=True):
        if logits:
            return self.fc(x)
        return torch.sigmoid(self.fc(x))


critic = Discriminator().cuda()
head = Head().cuda()
either = Either().cuda()
bce = nn.BCELoss()
for x, y in batches:
    scores = critic(x.cuda()).squeeze()
    loss = bce(scores, y.cuda())  # ARC012: flag
    loss = loss + bce(critic(-x.cuda()), y.cuda())  # ARC012: quiet
    loss = loss + nn.functional.binary_cross_entropy(head(x), y)  # ARC012: flag
    loss = loss + bce(either(x), y)  # ARC012: quiet
    loss.backward()
