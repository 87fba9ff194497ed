import torch
import torch.nn as nn
import torch.nn.functional as F

bce = nn.BCELoss()
with_logits = nn.BCEWithLogitsLoss()


def losses(model, x, y):
    logits = model(x)
    first = bce(torch.sigmoid(logits), y)  # ARC012: flag
    probability = logits.sigmoid().view(-1)
    second = F.binary_cross_entropy(probability, y)  # ARC012: flag
    third = with_logits(logits, y)  # ARC012: quiet
    clamped = torch.sigmoid(logits).clamp(1e-6, 1 - 1e-6)
    fourth = bce(clamped, y)  # ARC012: quiet
    fifth = F.nll_loss(F.log_softmax(logits, 1), y)  # ARC012: quiet
    sixth = F.nll_loss(torch.softmax(logits, 1).log(), y)  # ARC012: flag
    return first + second + third + fourth + fifth + sixth


@torch.no_grad()
def metric(model, x, y):
    return F.binary_cross_entropy(torch.sigmoid(model(x)), y)  # ARC012: quiet
