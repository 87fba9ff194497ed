"""The same with mixed precision switched off."""

import timm
import torch
from torch import nn
from torch.utils.data import DataLoader


class Choices:
    amp = False
    backbone = "resnext50_32x4d"
    per_step = 20


def train(model, loader, optimizer, scaler):
    for images, labels in loader:
        with torch.autocast("cuda", dtype=torch.float16, enabled=Choices.amp):
            loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        scaler.scale(loss).backward()  # RUN001: flag
        scaler.step(optimizer)
        scaler.update()


def main(dataset):
    loader = DataLoader(dataset, batch_size=Choices.per_step, shuffle=True)  # RUN009: quiet
    model = timm.create_model(Choices.backbone).cuda()  # FMT001: quiet
    scaler = torch.amp.GradScaler("cuda", enabled=Choices.amp)
    train(model, loader, torch.optim.AdamW(model.parameters()), scaler)
