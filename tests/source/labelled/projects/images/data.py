"""Images of one size."""

import torchvision
from torch.utils.data import DataLoader
from torchvision import transforms


def loader(batch_size):
    steps = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
    images = torchvision.datasets.CIFAR10("data", transform=steps)
    return DataLoader(images, batch_size=batch_size, shuffle=True, num_workers=4, pin_memory=True)
