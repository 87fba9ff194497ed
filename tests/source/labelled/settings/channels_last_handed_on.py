"""A model in channels last that a function gets under another name."""

import torch
import torchvision


def fit(network, batches, optimizer):
    for pictures, labels in batches:
        pictures = pictures.cuda(non_blocking=True)  # FMT003: flag
        labels = labels.cuda(non_blocking=True)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(pictures), labels).backward()
        optimizer.step()


def main(batches):
    backbone = torchvision.models.resnet50(num_classes=40).cuda()
    backbone = backbone.to(memory_format=torch.channels_last)
    fit(backbone, batches, torch.optim.SGD(backbone.parameters(), lr=0.1))
