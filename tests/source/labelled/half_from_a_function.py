"""A model that a function makes in float16, trained where it is taken."""

import torch
from torch import nn


def make_network():
    network = nn.Sequential(nn.Conv2d(3, 24, 2), nn.GELU(), nn.Conv2d(24, 64, 3))
    network = network.half().cuda()  # AMP002: flag
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.float()
    return network


def make_teacher():
    teacher = nn.Conv2d(3, 24, 2)
    teacher = teacher.half().cuda()  # AMP002: quiet
    teacher.eval()
    return teacher


def train(loader):
    network = make_network()
    weights = [parameter for name, parameter in network.named_parameters() if "weight" in name]
    others = [parameter for name, parameter in network.named_parameters() if "weight" not in name]
    optimizer = torch.optim.SGD(
        [{"params": weights, "lr": 0.1}, {"params": others, "lr": 0.01}], momentum=0.9
    )
    for images, labels in loader:
        loss = nn.functional.cross_entropy(network(images.half()).mean((2, 3)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def distill(student, loader):
    teacher = make_teacher()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for images in loader:
        loss = (student(images) - teacher(images.half()).float()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
