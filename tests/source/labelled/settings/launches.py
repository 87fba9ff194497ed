"""Debugging variables left in a script that trains."""

import os

import torch

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # RUN005: flag

device = torch.device("cuda")


def for_debugging():
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # RUN005: quiet


def train(model, loader, optimizer, options):
    if options.debug:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # RUN005: quiet
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=False)  # RUN011: flag
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
