"""autocast as a decorator, alone and among others."""

import functools

import torch
from torch.cuda.amp import autocast


@autocast()
def train_step(model, batch, optimizer):
    loss = model(batch)
    loss.backward()  # AMP001: flag  AMP006: flag
    optimizer.step()


@functools.wraps(train_step)
@torch.autocast(device_type="cuda", dtype=torch.bfloat16)
def bf16_step(model, batch, optimizer):
    loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: flag
    optimizer.step()


@autocast(enabled=False)
def full_precision_step(model, batch, optimizer):
    loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


@torch.compile
def compiled_step(model, batch, optimizer):
    loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


@torch.autocast("cuda")
def losses(model, batches):
    return [model(batch) for batch in batches]


def train(model, batches, optimizer):
    total = torch.stack(losses(model, batches)).mean()
    total.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()
