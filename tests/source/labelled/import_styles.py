"""Spellings of the import: alias, fallback for old versions, inside a function, shadowed."""

from contextlib import suppress
from functools import partial

import torch as th
from mylib import autocast as other_autocast

try:
    from torch.amp import autocast
except ImportError:
    from torch.cuda.amp import autocast

half_autocast = partial(th.autocast, device_type="cuda", dtype=th.float16)


def by_alias(model, batch, optimizer):
    with th.amp.autocast("cuda"):
        loss = model(batch)
    loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()


def by_fallback(model, batch):
    with autocast("cuda", dtype=th.bfloat16):
        model(batch).backward()  # AMP001: quiet  AMP006: flag


def by_partial(model, batch, optimizer):
    with half_autocast():
        loss = model(batch)
    loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()


def by_choice(model, batch, optimizer, use_amp):
    amp_autocast = partial(th.autocast, "cuda", dtype=th.bfloat16) if use_amp else suppress
    with amp_autocast():
        loss = model(batch)
        loss.backward()  # AMP001: quiet  AMP006: flag
    optimizer.step()


def inside(model, batch, optimizer):
    from torch.cuda import amp as precision

    with precision.autocast(True):
        loss = model(batch)
    loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()


def shadowed(model, batch, optimizer, autocast):
    with autocast("cuda"):
        loss = model(batch)
        loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def foreign(model, batch, optimizer):
    with other_autocast("cuda"):
        loss = model(batch)
        loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()
