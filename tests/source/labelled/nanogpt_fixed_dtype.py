"""The same trainer after someone fixed the dtype to float16 and dropped the scaler."""

from contextlib import nullcontext

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = "float16"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ctx = nullcontext() if device == "cpu" else torch.amp.autocast(device_type=device, dtype=DTYPES[DTYPE])


def step(model, optimizer, batches, micro_steps):
    for _ in range(micro_steps):
        x, y = next(batches)
        with ctx:
            _, loss = model(x, y)
            loss = loss / micro_steps
        loss.backward()  # AMP001: flag  AMP006: quiet
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def step_inside(model, optimizer, batches):
    x, y = next(batches)
    with ctx:
        _, loss = model(x, y)
        loss.backward()  # AMP001: flag  AMP006: flag
    optimizer.step()
