"""Binary cross entropy and autocast."""

import torch
import torch.nn.functional as F
from torch import nn


def in_region(model, x, y):
    with torch.autocast("cuda"):
        return F.binary_cross_entropy(model(x).sigmoid(), y)  # AMP007: flag


def with_logits(model, x, y):
    with torch.autocast("cuda"):
        return F.binary_cross_entropy_with_logits(model(x), y)  # AMP007: quiet


def after_region(model, x, y):
    with torch.autocast("cuda"):
        scores = model(x).sigmoid()
    return F.binary_cross_entropy(scores.float(), y)  # AMP007: quiet


def island(model, x, y):
    with torch.autocast("cuda"):
        scores = model(x).sigmoid()
        with torch.autocast("cuda", enabled=False):
            return F.binary_cross_entropy(scores.float(), y.float())  # AMP007: quiet


def on_cpu(model, x, y):
    with torch.autocast("cpu"):
        return F.binary_cross_entropy(model(x).sigmoid(), y)  # AMP007: quiet


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.bce = nn.BCELoss()

    def forward(self, scores, y):
        return self.bce(scores, y)  # AMP007: flag


class SafeLoss(nn.Module):
    def forward(self, scores, y):
        with torch.autocast("cuda", enabled=False):
            return F.binary_cross_entropy(scores.float(), y)  # AMP007: quiet


class Adversarial(nn.Module):
    def forward(self, scores, y):
        return F.binary_cross_entropy(scores, y)  # AMP007: quiet


def train(model, loader, args):
    criterion, safe = Loss().cuda(), SafeLoss()
    adversarial = Adversarial()
    for x, y in loader:
        with torch.autocast("cuda", enabled=args.amp):
            scores = model(x)
            loss = criterion(scores, y) + safe(scores, y)
        loss = loss + adversarial(scores.float(), y)
        yield loss


class GAN:
    def __init__(self):
        self.criterion = nn.BCELoss()
        self.logits_criterion = nn.BCEWithLogitsLoss()

    def adversarial_loss(self, scores, y):
        return self.criterion(scores, y)  # AMP007: flag

    def step(self, x, y):
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            loss = self.adversarial_loss(self.net(x), y)
            loss = loss + self.logits_criterion(self.net(x), y)  # AMP007: quiet
        return loss


class WithCriterion:
    def __init__(self, net, criterion):
        self.net = net
        self.criterion = criterion

    def step(self, x, y):
        with torch.autocast("cuda"):
            return self.criterion(self.net(x), y)  # AMP007: flag


class Switched(nn.Module):
    def __init__(self):
        super().__init__()
        self.bce = nn.BCELoss()

    def forward(self, scores, y, in_half_precision=False):
        with torch.autocast("cuda", enabled=in_half_precision):
            return self.bce(scores, y)  # AMP007: quiet


trainer = WithCriterion(make_net(), nn.BCELoss())
