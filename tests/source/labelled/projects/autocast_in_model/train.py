"""The loop knows nothing of autocast; its networks do."""

import torch
from networks import Always, Chosen, Inside, Wide


def train(network, loader, optimizer):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()  # AMP001: flag
        optimizer.step()


def with_settings(loader, optimizer, mixed):
    network = Chosen(64, mixed).cuda()
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()  # AMP001: flag
        optimizer.step()


def in_bfloat16(loader, optimizer):
    network = Wide(64).cuda()
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()  # AMP001: quiet
        optimizer.step()


def one_of_two(loader, optimizer, small):
    if small:
        network = torch.nn.Linear(64, 10)
    else:
        network = Inside(64)
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()  # AMP001: flag
        optimizer.step()


def wrapped(loader, optimizer):
    network = torch.compile(Inside(64).cuda())
    for images, labels in loader:
        output = network(images)
        loss = torch.nn.functional.cross_entropy(output, labels)
        loss.backward()  # AMP001: flag
        optimizer.step()


if __name__ == "__main__":
    net = Always(64).cuda()
    train(net, make_loader(), torch.optim.SGD(net.parameters(), lr=0.1))
