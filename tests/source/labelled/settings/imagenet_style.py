"""In the style of PyTorch's ImageNet example."""

import argparse
import random

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torchvision.datasets as datasets
import torchvision.models as models
import torchvision.transforms as transforms

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", default=250, type=int)
parser.add_argument("--seed", default=None, type=int)


def main():
    args = parser.parse_args()
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        cudnn.deterministic = True
        cudnn.benchmark = False  # RUN002: quiet  # RUN003: quiet
    main_worker(args)


def main_worker(args):
    model = models.resnet50()  # FMT001: flag
    if torch.cuda.device_count() > 1:
        model = torch.nn.DataParallel(model).cuda()  # RUN013: flag
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    normalize = transforms.Normalize(mean=[0.5], std=[0.5])
    train_dataset = datasets.ImageFolder(
        "train", transforms.Compose([transforms.RandomResizedCrop(224), normalize])
    )
    val_dataset = datasets.ImageFolder("val", transforms.Compose([transforms.CenterCrop(224), normalize]))
    train_loader = torch.utils.data.DataLoader(  # RUN009: flag
        train_dataset, batch_size=args.batch_size, shuffle=True, num_workers=4, pin_memory=True
    )
    val_loader = torch.utils.data.DataLoader(val_dataset, batch_size=250, num_workers=4)  # RUN009: quiet
    for epoch in range(90):
        train(train_loader, model, criterion, optimizer, scaler)
        validate(val_loader, model, criterion)


def train(train_loader, model, criterion, optimizer, scaler):
    model.train()
    for i, (images, target) in enumerate(train_loader):
        images = images.cuda(non_blocking=True)
        target = target.cuda(non_blocking=True)
        with torch.autocast("cuda"):
            loss = criterion(model(images), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()  # RUN001: quiet  # PRC001: quiet
        scaler.step(optimizer)
        scaler.update()
        if i % 10 == 0:
            print(loss.item())  # RUN014: quiet


def validate(val_loader, model, criterion):
    model.eval()
    with torch.no_grad():
        for images, target in val_loader:
            loss = criterion(model(images.cuda()), target.cuda())  # RUN016: quiet
            print(loss.item())  # RUN014: quiet
