"""The format is chosen by an option."""

import torch
import torchvision


def main(args, loader, criterion, scaler):
    model = torchvision.models.resnet50().cuda()  # FMT001: quiet
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        images = images.cuda()
        if args.channels_last:
            images = images.to(memory_format=torch.channels_last)
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
