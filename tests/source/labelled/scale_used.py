"""The loss scale is read and gradients, or the limit they are clipped to, follow it."""

import torch
from torch.nn.utils import clip_grad_norm_


def train(net, batches, optimizer, scaler, limit):
    for images, labels in batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        factor = scaler.get_scale()
        clip_grad_norm_(net.parameters(), limit * factor)  # AMP003: quiet
        scaler.step(optimizer)
        scaler.update()
