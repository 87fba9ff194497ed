"""The same without mixed precision."""

import settings
import torch
import torchvision
from torch.utils.data import DataLoader


def main(dataset):
    batches = DataLoader(dataset, batch_size=settings.PER_STEP, shuffle=True)  # RUN009: quiet
    network = torchvision.models.resnet34().cuda()  # FMT001: quiet
    optimizer = torch.optim.AdamW(network.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=settings.MIXED)
    for pictures, labels in batches:
        with torch.autocast("cuda", dtype=torch.float16, enabled=settings.MIXED):
            loss = torch.nn.functional.cross_entropy(network(pictures.cuda()), labels.cuda())
        optimizer.zero_grad()
        scaler.scale(loss).backward()  # RUN001: flag
        scaler.step(optimizer)
        scaler.update()
