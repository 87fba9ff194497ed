"""Objects with a backward method of their own, made in the file or named for what they are."""

import torch


class Pipeline:
    def __init__(self, model):
        self.model = model

    def backward(self):
        self.model.zero_grad()


def train(model, batch, optimizer, engine, trainer):
    pipeline = Pipeline(model)
    with torch.autocast("cuda"):
        loss = model(batch)
        pipeline.backward()  # AMP001: quiet  AMP006: quiet
        engine.backward(loss)  # AMP001: quiet  AMP006: quiet
        trainer.model.backward()  # AMP001: quiet  AMP006: quiet
        optimizer.backward(loss)  # AMP001: quiet  AMP006: quiet
        Pipeline(model).backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()
