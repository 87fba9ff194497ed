"""bfloat16 by argument, by constant, by default on the CPU, and by an inner region."""

import torch

AMP_DTYPE = torch.bfloat16


class Config:
    dtype = torch.bfloat16


def with_constant(model, batch, optimizer):
    with torch.cuda.amp.autocast(dtype=AMP_DTYPE):
        loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def with_parameter(model, batch, optimizer, dtype=torch.float16):
    with torch.autocast("cuda", dtype=dtype):
        loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def on_cpu(model, batch, optimizer):
    with torch.cpu.amp.autocast():
        loss = model(batch)
        loss.backward()  # AMP001: quiet  AMP006: flag
    optimizer.step()


def with_keywords(model, batch, optimizer, options):
    with torch.autocast("cuda", **options):
        loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def on_device_of(model, batch, optimizer, device):
    with torch.autocast(device_type=device.type):
        loss = model(batch)
    loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()


def with_config(model, batch, optimizer, config: Config):
    with torch.autocast("cuda", config.dtype):
        loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()
