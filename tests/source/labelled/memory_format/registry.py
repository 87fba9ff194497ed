"""A dict of models, any of which is a network of convolutions, and a builder that returns two things."""

import torch
import torchvision

NETWORKS = {
    "small": torchvision.models.resnet18,
    "large": torchvision.models.resnet101,
}


def build(name):
    network = NETWORKS[name](num_classes=10)  # FMT001: flag
    network = network.cuda()
    return network, torch.optim.SGD(network.parameters(), lr=0.1)


def main(args, loader, criterion):
    model, optimizer = build(args.network)
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
