"""What is trained and on what stands in other files."""

import torch
from data import loader
from network import Network


def main():
    network = Network().to("cuda")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    criterion = torch.nn.CrossEntropyLoss()
    for x, y in loader(128):
        loss = criterion(network(x.to("cuda", non_blocking=True)), y.to("cuda", non_blocking=True))
        optimizer.zero_grad()
        loss.backward()  # RUN001: flag
        optimizer.step()
