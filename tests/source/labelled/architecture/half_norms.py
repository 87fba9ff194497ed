"""Models that train in 16 bits as a whole, batch norms included."""

import timm
import torch
import torchvision
from torch import nn


class ConvBlock(nn.Sequential):
    def __init__(self, channels):
        super().__init__(nn.Conv2d(channels, channels, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU())


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(ConvBlock(64), ConvBlock(64))


class LayerNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64))


def train_resnet(loader):
    model = torchvision.models.resnet50().cuda().half()  # ARC019: flag  AMP002: flag
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images in loader:
        model(images).mean().backward()
        optimizer.step()


def train_own(loader):
    net = Norms().cuda()
    net.to(torch.bfloat16)  # ARC019: flag
    optimizer = torch.optim.AdamW(net.parameters())
    for images in loader:
        net(images).mean().backward()
        optimizer.step()


def train_of_timm(loader, args):
    model = timm.create_model("resnet18", num_classes=10)
    if args.half:
        model = model.half()  # ARC019: flag  AMP002: flag
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images in loader:
        model(images).mean().backward()
        optimizer.step()


class Trainer:
    def __init__(self):
        self.model = Norms().to(torch.float16)  # ARC019: flag  AMP002: flag
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, images):
        self.model(images).mean().backward()
        self.optimizer.step()


def train_without_batch_norms(loader):
    model = LayerNorms().cuda().to(torch.bfloat16)  # ARC019: quiet
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()


def distill(loader):
    teacher = torchvision.models.resnet50().cuda().half()  # ARC019: quiet
    student = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for images in loader:
        (student(images) - teacher(images.half())).square().mean().backward()
        optimizer.step()


def deploy(images):
    model = torchvision.models.resnet50().half()  # ARC019: quiet
    with torch.no_grad():
        return model(images)


def given(model, loader):
    model = model.half()  # ARC019: quiet  AMP002: flag
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images in loader:
        model(images).mean().backward()
        optimizer.step()
