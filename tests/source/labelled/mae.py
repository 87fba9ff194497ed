"""Masked autoencoder style: the scaler is an object of another file that does the backward pass."""

import math
import sys

import torch


def train_one_epoch(model, data_loader, optimizer, loss_scaler, accum_iter):
    optimizer.zero_grad()
    for step, (samples, _) in enumerate(data_loader):
        with torch.cuda.amp.autocast():
            loss, _, _ = model(samples, mask_ratio=0.75)
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            print(f"Loss is {loss_value}, stopping training")
            sys.exit(1)
        loss /= accum_iter
        if loss_scaler is None:
            loss.backward()  # AMP001: quiet  AMP006: quiet
            optimizer.step()
        else:
            update = (step + 1) % accum_iter == 0
            loss_scaler(loss, optimizer, parameters=model.parameters(), update_grad=update)
