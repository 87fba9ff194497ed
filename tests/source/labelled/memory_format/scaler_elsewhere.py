"""An engine that hands loss and optimizer to a scaler of another file."""

import timm
import torch


def train_one_epoch(model, loader, optimizer, loss_scaler, criterion):
    model.train()
    for samples, targets in loader:
        samples = samples.to("cuda", non_blocking=True)
        with torch.cuda.amp.autocast():
            loss = criterion(model(samples), targets)
        optimizer.zero_grad()
        loss_scaler(loss, optimizer, parameters=model.parameters())


def main(loader, criterion, scaler):
    model = timm.create_model("convnext_tiny", drop_path_rate=0.1)  # FMT001: flag
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train_one_epoch(model, loader, optimizer, scaler, criterion)
