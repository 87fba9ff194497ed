import torch


def train(model, loader, optimizer, criterion, channels_last=False):
    for images, labels in loader:
        images = images.cuda()  # FMT003: quiet
        if channels_last:
            images = images.contiguous(memory_format=torch.channels_last)  # FMT002: quiet  # FMT004: quiet
        loss = criterion(model(images), labels.cuda())
        loss.backward()
        optimizer.step()
