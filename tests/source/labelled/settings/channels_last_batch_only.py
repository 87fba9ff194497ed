import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3)


net = Net().cuda()
for step, (images, labels) in enumerate(train_loader):
    images = images.to("cuda", memory_format=torch.channels_last)  # FMT004: flag  # FMT005: quiet
    loss = nn.functional.cross_entropy(net(images), labels.cuda())
    loss.backward()
    optimizer.step()
