"""A DeepSpeed engine: backward and step belong to the engine."""

import deepspeed
import torch


def train(model, loader, config):
    model_engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model_engine(batch)
            model_engine.backward(loss)  # AMP001: quiet  AMP006: quiet
        model_engine.step()
        optimizer.step()
