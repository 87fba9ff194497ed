"""A dict of models, one of which is a transformer."""

import torch
import torchvision

NETWORKS = {"cnn": torchvision.models.resnet18, "vit": torchvision.models.vit_b_16}


def main(args, loader, criterion):
    model = NETWORKS[args.network]().cuda()  # FMT001: quiet
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
