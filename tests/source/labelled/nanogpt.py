"""A single-file language model trainer: dtype from a table, context in a variable, configurator by exec."""

from contextlib import nullcontext

import torch

device = "cuda"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
gradient_accumulation_steps = 40
exec(open("configurator.py").read())  # noqa: SIM115

device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)


def step(model, optimizer, get_batch):
    x, y = get_batch("train")
    for _ in range(gradient_accumulation_steps):
        with ctx:
            _, loss = model(x, y)
            loss = loss / gradient_accumulation_steps
        x, y = get_batch("train")
        loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
