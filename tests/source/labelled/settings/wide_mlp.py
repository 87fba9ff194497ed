import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, width=2048):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))


def train(net, loader, optimizer):
    for samples, targets in loader:
        loss = nn.functional.mse_loss(net(samples.to("cuda")), targets.to("cuda"))
        loss.backward()  # PRC001: flag
        optimizer.step()
