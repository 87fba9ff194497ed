"""A parameter for a scaler that nothing reads."""

import torch


def run_epoch(model, loader, device, optimizer, scaler=None, use_amp=False):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast(device_type="cuda", enabled=use_amp and device.type == "cuda"):
            loss = model(x.to(device), y.to(device))
        loss.backward()  # AMP001: flag
        optimizer.step()


def main(model, loader, device):
    optimizer = torch.optim.AdamW(model.parameters())
    run_epoch(model, loader, device, optimizer, None, use_amp=device.type == "cuda")
