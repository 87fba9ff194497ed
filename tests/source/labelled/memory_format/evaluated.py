"""A convolutional network scores what another model makes; only that one is trained."""

import torch
import torchvision


def main(generator, loader):
    inception = torchvision.models.inception_v3().cuda().eval()  # FMT001: quiet
    optimizer = torch.optim.Adam(generator.parameters())
    for z in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = inception(generator(z.cuda())).mean()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(loader):
    model = torchvision.models.resnet50().cuda()  # FMT001: quiet
    for images in loader:
        with torch.autocast("cuda"):
            yield model(images.cuda())
