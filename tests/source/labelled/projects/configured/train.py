"""A script whose numbers stand in another file."""

import settings
import timm
import torch
from data import Pictures
from settings import Choices
from torch.utils.data import DataLoader


def step(batches, network, optimizer, scaler):
    for pictures, labels in batches:
        pictures = pictures.to(settings.DEVICE, non_blocking=True)
        labels = labels.to(settings.DEVICE, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(network(pictures), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()  # RUN001: flag
        scaler.step(optimizer)
        scaler.update()


def main():
    batches = DataLoader(Pictures(), batch_size=settings.PER_STEP, shuffle=True)  # RUN009: flag
    network = timm.create_model(Choices.backbone, num_classes=Choices.classes).cuda()  # FMT001: flag
    optimizer = torch.optim.AdamW(network.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(settings.ROUNDS):
        step(batches, network, optimizer, scaler)


main()
