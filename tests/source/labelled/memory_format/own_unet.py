"""Segmentation with a network of the file, in bfloat16."""

import torch
from torch import nn


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([block(3, 64), block(64, 128)])
        self.up = nn.ConvTranspose2d(128, 64, 2, stride=2)
        self.out = nn.Conv2d(64, 1, 1)

    def forward(self, x):
        for layer in self.down:
            x = layer(x)
        return self.out(self.up(x))


def train(net, loader, device, amp):
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-5)
    for batch in loader:
        images, masks = batch["image"].to(device), batch["mask"].to(device)
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16, enabled=amp):
            loss = nn.functional.binary_cross_entropy_with_logits(net(images), masks)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    unet = UNet()  # FMT001: flag
    unet.to("cuda")
    train(unet, [], "cuda", True)
