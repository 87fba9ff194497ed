"""ImageNet training with an architecture chosen by an option, under autocast."""

import argparse

import torch
import torchvision.models as models

parser = argparse.ArgumentParser()
parser.add_argument("-a", "--arch", default="resnet50")


def main(train_loader, criterion):
    args = parser.parse_args()
    model = models.__dict__[args.arch]()  # FMT001: flag
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    for images, target in train_loader:
        images = images.cuda(non_blocking=True)
        target = target.cuda(non_blocking=True)
        with torch.autocast("cuda"):
            loss = criterion(model(images), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
