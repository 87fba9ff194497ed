"""Losses handed to helpers of the same file, which may or may not know about mixed precision."""

import torch


def update(loss, optimizer, *, retain=False):
    optimizer.zero_grad()
    loss.backward(retain_graph=retain)  # AMP001: flag  AMP006: quiet
    optimizer.step()


def update_plain(objective, optimizer):
    objective.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def update_times(loss, optimizer, factor):
    loss = loss * factor
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def update_detached(loss, metric):
    metric.backward()  # AMP001: quiet  AMP006: quiet
    print(loss)


def train(model, batches, optimizer, amp):
    for batch in batches:
        with torch.autocast("cuda", enabled=amp):
            loss = model(batch)
        update(optimizer=optimizer, loss=loss)
        if not amp:
            update_plain(loss, optimizer)
        update_times(loss, optimizer, 2.0**14)
        update_detached(loss, torch.zeros(()))
        update_plain(model(batch), optimizer)
