"""Functions defined where autocast is open, but called elsewhere, and closures with their own region."""

import torch


def train(model, loader, optimizer, criterion):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x), y)

            def finish(loss=loss):
                loss.backward()  # AMP001: quiet  AMP006: quiet

            later = lambda: loss.backward()  # noqa: E731, B023, PLW0108  # AMP001: quiet  AMP006: quiet
        finish()
        later()
        optimizer.step()


def train_lbfgs(model, x, y, optimizer, criterion):
    def closure():
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(x), y)
        loss.backward()  # AMP001: flag  AMP006: quiet
        return loss

    optimizer.step(closure)


def train_with_nested_region(model, batches, optimizer):
    def run(batch):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
            loss.backward()  # AMP001: quiet  AMP006: flag

    for batch in batches:
        run(batch)
        optimizer.step()
