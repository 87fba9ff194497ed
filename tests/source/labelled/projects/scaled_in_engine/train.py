"""One loss is scaled by the engine; who knows about the other."""

import torch
from engine import finish
from networks import Always

network = Always().cuda()
for images, labels in make_loader():
    loss = torch.nn.functional.cross_entropy(network(images), labels)
    finish(loss, optimizer)
    auxiliary = network(images).square().mean()
    auxiliary.backward()  # AMP001: flag
    auxiliary_optimizer.step()
