import torch
import torchvision
from torch import nn

model = torchvision.models.resnet50()
model.to(memory_format=torch.channels_last)  # FMT002: quiet  # FMT005: quiet
model.cuda()
for images, labels in train_loader:
    images = images.cuda(non_blocking=True)  # FMT003: quiet
    images.to(memory_format=torch.channels_last)  # FMT002: flag
    loss = nn.functional.cross_entropy(model(images), labels.cuda())
    loss.backward()
    optimizer.step()
