import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, width=2048):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        return self.layers(x)


def train(net, loader, optimizer):
    for samples, targets in loader:
        loss = nn.functional.mse_loss(net(samples.to("cuda")), targets.to("cuda"))
        loss.backward()  # PRC001: flag
        optimizer.step()


model = Net()
train(model, batches, torch.optim.Adam(model.parameters()))
