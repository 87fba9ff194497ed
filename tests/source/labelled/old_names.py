"""torch.cuda.amp and what looks like it."""

import torch
from torch.cuda import amp
from torch.cuda.amp import GradScaler, autocast

try:
    from torch.amp import GradScaler as NewScaler
except ImportError:
    from torch.cuda.amp import GradScaler as NewScaler

if hasattr(torch.amp, "custom_fwd"):
    custom_fwd = torch.amp.custom_fwd(device_type="cuda")
else:
    custom_fwd = torch.cuda.amp.custom_fwd  # AMP014: quiet


def train(model, loader, optimizer):
    scaler = GradScaler()  # AMP014: flag
    for batch in loader:
        with autocast():  # AMP014: flag
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def in_full(model, batch):
    with torch.cuda.amp.autocast(enabled=False):  # AMP014: flag
        return model(batch)


def by_the_module(model, batch):
    with amp.autocast():  # AMP014: flag
        return model(batch)


@torch.cuda.amp.autocast()  # AMP014: flag
def decorated(model, batch):
    return model(batch)


def of_today(model, batch):
    scaler = NewScaler()  # AMP014: quiet
    with torch.amp.autocast("cuda"):  # AMP014: quiet
        return scaler.scale(model(batch))


def by_version(model, batch):
    if torch.__version__ >= "2.4":
        context = torch.amp.autocast("cuda")  # AMP014: quiet
    else:
        context = torch.cuda.amp.autocast()  # AMP014: quiet
    with context:
        return model(batch)
