"""Batches in channels last for a model that another function made."""

import torch
import torchvision


def fit(network, batches, optimizer):
    for pictures, labels in batches:
        pictures = pictures.cuda().to(memory_format=torch.channels_last)  # FMT004: flag
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(pictures), labels.cuda()).backward()
        optimizer.step()


def main(batches):
    backbone = torchvision.models.resnet50(num_classes=40).cuda()
    fit(backbone, batches, torch.optim.SGD(backbone.parameters(), lr=0.1))
