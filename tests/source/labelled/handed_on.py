"""Scalers that a caller makes and hands on, and one that is imported and never used."""

import argparse

import torch
from torch.cuda.amp import GradScaler, autocast


def bfloat16_epoch(model, loader, optimizer, grad_scaler):
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        grad_scaler.scale(loss).backward()  # AMP008: flag
        grad_scaler.step(optimizer)
        grad_scaler.update()


def float16_epoch(model, loader, optimizer, half_scaler):
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch)
        half_scaler.scale(loss).backward()  # AMP008: quiet
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # AMP003: quiet
        half_scaler.step(optimizer)
        half_scaler.update()


def start(model, loader, optimizer, epochs):
    grad_scaler = torch.amp.GradScaler("cuda")
    for _ in range(epochs):
        bfloat16_epoch(model, loader, optimizer, grad_scaler)


def main():
    options = argparse.ArgumentParser().parse_args()
    half_scaler = torch.amp.GradScaler("cuda", enabled=False)
    model, loader, optimizer = load(options)
    float16_epoch(model, loader, optimizer, half_scaler)


if __name__ == "__main__":
    main()
